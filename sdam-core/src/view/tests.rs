use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::time::Duration;

use proptest::{collection::vec as vector, prelude::*};

use super::*;
use crate::{
    address::ServerAddress,
    deployment::Input,
    error::Error,
    hello::Hello,
    monitor::MonitorConfig,
    rng::Rng,
    server::{ServerType, WireVersions},
};

const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn address(name: &str) -> ServerAddress {
    ServerAddress::parse(name).unwrap()
}

fn hello(server_type: ServerType) -> Hello {
    Hello {
        server_type,
        wire_versions: WireVersions { min: 0, max: 21 },
        set_name: Some("rs".into()),
        primary: (server_type == ServerType::RsSecondary).then(|| address("a")),
        hosts: MEMBERS.map(address).into(),
        ..Hello::default()
    }
}

/// Returns the type that the events about a server of this type show (J-19).
fn announced(server_type: ServerType) -> ServerType {
    match server_type {
        ServerType::PossiblePrimary => ServerType::Unknown,
        other => other,
    }
}

/// Everything that a handle knows from the outputs that it has carried out.
#[derive(Default)]
struct Handle {
    view: View,
    published: Arc<TopologyDescription>,
    /// The description that results from the events.
    announced: Arc<TopologyDescription>,
    servers: BTreeMap<ServerId, ServerType>,
    /// The generation of each pool, and whether the pool is ready.
    pools: BTreeMap<ServerId, (Generation, bool)>,
    is_over: bool,
}

impl Handle {
    fn run(&mut self, outputs: Outputs, generation: impl Fn(ServerId) -> Option<Generation>) {
        for output in outputs {
            assert!(!self.is_over, "{output:?} after the end");
            match output {
                Output::OpenServer { server, monitored, .. } => {
                    assert!(!monitored);
                    let first = generation(server).unwrap_or_default();
                    assert!(self.pools.insert(server, (first, false)).is_none());
                }
                Output::CloseServer { server } => assert!(self.pools.remove(&server).is_some()),
                Output::PoolReady { server } => {
                    let (_, ready) = self.pools.get_mut(&server).unwrap();
                    assert!(!*ready, "ready only after a clear");
                    *ready = true;
                }
                Output::PoolClear { server, clear } => {
                    let (own, ready) = self.pools.get_mut(&server).unwrap();
                    assert!(clear.generation > *own, "{clear:?}");
                    assert_eq!(clear.was_paused, !*ready, "{clear:?}");
                    (*own, *ready) = (clear.generation, false);
                }
                Output::Publish(description) => self.published = description,
                Output::Emit(event) => self.observe(event),
                other => unreachable!("{other:?}"),
            }
        }
    }

    fn observe(&mut self, event: EventKind) {
        match event {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                assert_eq!(previous, self.announced);
                self.announced = new;
            }
            EventKind::ServerOpening { server, .. } => {
                assert!(self.servers.insert(server, ServerType::Unknown).is_none());
            }
            EventKind::ServerClosed { server, .. } => {
                assert!(self.servers.remove(&server).is_some());
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                assert_ne!(previous, new);
                let own = self.servers.get_mut(&new.id).unwrap();
                assert_ne!(new.server_type, ServerType::PossiblePrimary, "J-19");
                assert_eq!(*own, announced(previous.server_type));
                *own = new.server_type;
            }
            EventKind::TopologyClosed => self.is_over = true,
            _ => {}
        }
    }
}

struct World {
    now: Instant,
    options: Options,
    deployment: Deployment,
    published: Arc<TopologyDescription>,
    handles: Vec<Handle>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    Close(usize),
    Pause,
    Resume,
    Check(usize, Option<ServerType>),
    /// An error that a handle reports for a server, under the current generation or an older one.
    Fail(usize, usize, Failure, u64),
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Password,
    Refusal,
    Network,
    NotPrimary,
    ShutDown,
    Authentication,
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Self::Password => Error::auth("wrong password"),
            Self::Refusal => Error::new(ErrorKind::Command, Stage::Hello, "unsupported API"),
            Self::Network => Error::network(Stage::Operation, "reset"),
            Self::NotPrimary => {
                Error::new(ErrorKind::Command, Stage::Operation, "").with_code(10107)
            }
            Self::ShutDown => Error::new(ErrorKind::Command, Stage::Operation, "").with_code(91),
            Self::Authentication => Error::network(Stage::Auth, "reset"),
        }
    }

    fn is_own(self) -> bool {
        matches!(self, Self::Password | Self::Refusal)
    }
}

impl World {
    fn new() -> Self {
        let mut options = Options::new(vec![address("a"), address("b")]);
        options.replica_set = Some("rs".into());
        let config = Arc::new(MonitorConfig::new(&options, Arc::default(), false));
        let deployment = Deployment::new(&options, config, Rng::new(1));
        let mut world = Self {
            now: Instant::EPOCH,
            options,
            deployment,
            published: Arc::default(),
            handles: Vec::new(),
        };
        // The first handle exists before the deployment opens.
        world.open();
        let outputs = world.deployment.handle(world.now, Input::Open);
        world.follow(&outputs);
        world
    }

    fn open(&mut self) {
        let (view, outputs) = View::open(self.now, &self.deployment, &self.options);
        let mut handle = Handle { view, ..Handle::default() };
        handle.run(outputs, |server| self.deployment.generation(server, None));
        self.handles.push(handle);
    }

    fn follow(&mut self, outputs: &Outputs) {
        for output in outputs {
            if let Output::Publish(description) = output {
                self.published = Arc::clone(description);
            }
        }
        for handle in &mut self.handles {
            let own = handle.view.follow(self.now, outputs);
            handle.run(own, |_| None);
        }
    }

    fn server(&self, index: usize) -> Option<ServerId> {
        let servers = self.deployment.description().servers();
        servers.get(index % servers.len().max(1)).map(|server| server.id)
    }

    fn check(&mut self, server: ServerId, outcome: Option<ServerType>) {
        let outcome = match outcome {
            Some(server_type) => Ok(Ok(hello(server_type)).into()),
            None => Err(Error::network(Stage::Hello, "reset")),
        };
        let input = Input::Played { server, outcome, rtt: Duration::from_millis(1) };
        let outputs = self.deployment.handle(self.now, input);
        self.follow(&outputs);
    }

    fn fail(&mut self, (handle, server): (usize, ServerId), failure: Failure, age: u64) {
        let Some(pool) = self.deployment.pool_state(server) else {
            return;
        };
        let untouched: Vec<_> =
            self.handles.iter().map(|handle| Arc::clone(&handle.published)).collect();
        let index = handle % self.handles.len();
        let own = &mut self.handles[index];
        let generation = own.view.generation(server, pool.generation).as_u64().checked_sub(age);
        let Some(generation) = generation.map(Generation::from_u64) else {
            return;
        };
        let mut report = ErrorReport::new(generation, failure.error());
        let (verdict, outputs) = own.view.handle_error(self.now, server, &report, Some(pool));
        own.run(outputs, |_| None);
        match verdict {
            Verdict::Own(outcome) => {
                let is_fresh = age == 0 && failure.is_own();
                assert_eq!(outcome == ErrorOutcome::Cleared, is_fresh && !own.is_over);
                for (index, before) in untouched.iter().enumerate().filter(|(own, _)| *own != index)
                {
                    assert!(Arc::ptr_eq(before, &self.handles[index].published));
                }
            }
            Verdict::Shared(generation) => {
                assert!(!failure.is_own());
                report.generation = generation;
                let (outcome, outputs) = self.deployment.handle_error(self.now, server, &report);
                assert!(age == 0 || outcome == ErrorOutcome::Stale, "{outcome:?}");
                self.follow(&outputs);
            }
        }
    }

    fn step(&mut self, step: Step) {
        self.now = self.now + Duration::from_millis(1);
        match step {
            Step::Open => self.open(),
            Step::Close(handle) => {
                let index = handle % self.handles.len();
                let interrupted = self.deployment.interrupted(self.now);
                let outputs = self.handles[index].view.close(interrupted);
                self.handles[index].run(outputs, |_| None);
            }
            Step::Pause | Step::Resume => {
                let input = if let Step::Pause = step { Input::Pause } else { Input::Resume };
                let outputs = self.deployment.handle(self.now, input);
                self.follow(&outputs);
            }
            Step::Check(server, outcome) => {
                if let Some(server) = self.server(server) {
                    self.check(server, outcome);
                }
            }
            Step::Fail(handle, server, failure, age) => {
                if let Some(server) = self.server(server) {
                    self.fail((handle, server), failure, age);
                }
            }
        }
        self.handles.iter().for_each(|handle| self.verify(handle));
    }

    fn verify(&self, handle: &Handle) {
        let description = handle.view.description();
        assert!(Arc::ptr_eq(&handle.published, description));
        assert_eq!(handle.announced, *description);
        let servers = description.servers().iter();
        let known = servers.map(|server| (server.id, announced(server.server_type)));
        assert_eq!(handle.servers, known.collect());
        assert_eq!(handle.is_over, handle.view.is_closed());
        for (server, (generation, ready)) in &handle.pools {
            let base = self.deployment.generation(*server, None).unwrap();
            assert_eq!(handle.view.generation(*server, base), *generation);
            let current = description.server_by_id(*server).unwrap();
            let is_known = current.server_type.is_data_bearing() && !self.deployment.is_paused();
            assert!(*ready || !is_known, "{description}");
        }
        if handle.view.own.is_empty() && !handle.is_over {
            assert_eq!(**description, *self.published);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        1 => Just(None),
        2 => Just(Some(ServerType::RsPrimary)),
        3 => Just(Some(ServerType::RsSecondary)),
        1 => Just(Some(ServerType::Standalone)),
    ];
    let failure = prop_oneof![
        Just(Failure::Password),
        Just(Failure::Refusal),
        Just(Failure::Network),
        Just(Failure::NotPrimary),
        Just(Failure::ShutDown),
        Just(Failure::Authentication),
    ];
    prop_oneof![
        1 => Just(Step::Open),
        1 => any::<usize>().prop_map(Step::Close),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        6 => (any::<usize>(), outcome).prop_map(|(server, outcome)| Step::Check(server, outcome)),
        6 => (any::<usize>(), any::<usize>(), failure, 0..3_u64)
            .prop_map(|(handle, server, failure, age)| Step::Fail(handle, server, failure, age)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn handles_agree_with_the_deployment_except_where_they_are_to_blame(
        steps in vector(step(), 0..60),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.step(Step::Resume);
        // Once every member has answered again, the handles' own failures have left no trace.
        world.now = world.now + Duration::from_millis(1);
        for name in MEMBERS {
            let known = world.deployment.description().server(&address(name)).map(|own| own.id);
            if let Some(server) = known {
                let primary = if name == "a" { ServerType::RsPrimary } else { ServerType::RsSecondary };
                world.check(server, Some(primary));
            }
        }
        for handle in world.handles.iter().filter(|handle| !handle.is_over) {
            prop_assert!(Arc::ptr_eq(&handle.published, &world.published));
            world.verify(handle);
        }
        let outputs = world.deployment.handle(world.now, Input::Close);
        world.follow(&outputs);
        for handle in &world.handles {
            prop_assert!(handle.is_over && handle.pools.is_empty() && handle.servers.is_empty());
        }
    }
}
