//! Real servers for files that need a complete deployment.

use std::cell::OnceCell;

use bson::doc;
use futures::future::BoxFuture;
use sdam_live::{MemberSpec, Mongod, ROOT, ReplicaSet, Version};
use sdam_spec::{
    host::TestDeployment,
    requirement::{Environment, Kind},
};
use sdam_transport::runtime::Runtime;

/// Servers of one release series. Each deployment is started when a test first needs it, and is
/// shared by all tests.
pub(super) struct Servers {
    version: Version,
    release: [u32; 3],
    /// A server without authentication, and a server with authentication. `set` contains the
    /// corresponding replica sets.
    single: [OnceCell<Mongod>; 2],
    set: [OnceCell<ReplicaSet>; 2],
}

impl Servers {
    pub(super) fn start(version: Version) -> Result<Self, String> {
        let single = Mongod::start(version).map_err(|error| error.to_string())?;
        let info = single.run_command("admin", doc! { "buildInfo": 1 });
        let info = info.map_err(|error| error.to_string())?;
        let numbers = info.get_array("versionArray").into_iter().flatten();
        let mut release = [0; 3];
        for (own, number) in release.iter_mut().zip(numbers) {
            *own = number.as_i32().unwrap_or_default().cast_unsigned();
        }
        Ok(Self {
            version,
            release,
            single: [single.into(), OnceCell::new()],
            set: [OnceCell::new(), OnceCell::new()],
        })
    }

    pub(super) fn environments(&self) -> Vec<Environment> {
        let kinds = [Kind::Single, Kind::ReplicaSet].into_iter();
        let environments = kinds.flat_map(|kind| {
            [false, true].map(|authentication| Environment {
                kind,
                release: self.release,
                authentication,
            })
        });
        environments.collect()
    }

    /// Returns the deployment for `environment`, after turning off the fail points of earlier
    /// tests.
    pub(super) fn deploy(
        &self,
        environment: &Environment,
        runtime: Runtime,
        block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
    ) -> Result<TestDeployment, String> {
        let uri = self.prepare(environment).map_err(|error| error.to_string())?;
        let uri = if environment.authentication {
            let (user, password) = ROOT;
            uri.replace("mongodb://", &format!("mongodb://{user}:{password}@"))
        } else {
            uri
        };
        Ok(TestDeployment::new(uri, None, runtime, block_on, ()))
    }

    fn prepare(&self, environment: &Environment) -> Result<String, sdam_live::Error> {
        let is_secured = environment.authentication;
        let cell = usize::from(is_secured);
        if environment.kind == Kind::Single {
            let mongod = start(&self.single[cell], || Mongod::start_secured(self.version))?;
            reset(mongod)?;
            return Ok(format!("mongodb://{}/", mongod.host()));
        }
        let set = start(&self.set[cell], || self.start_set(is_secured))?;
        set.members().try_for_each(reset)?;
        set.wait_until_settled()?;
        Ok(set.uri())
    }

    fn start_set(&self, is_secured: bool) -> Result<ReplicaSet, sdam_live::Error> {
        let members = [const { MemberSpec::new() }; 3];
        let builder = ReplicaSet::builder(self.version);
        if !is_secured {
            return builder.start(&members);
        }
        let set = builder.secured().start(&members)?;
        // Waits until every member knows the user, because members that do not know it yet reject
        // it.
        let all = doc! {
            "insert": "c", "documents": [{}], "writeConcern": { "w": members.len() as i32 },
        };
        set.member(set.primary()?).run_command("test", all)?;
        Ok(set)
    }
}

/// Returns the value of `cell`, which `start` creates if necessary.
fn start<T>(
    cell: &OnceCell<T>,
    start: impl FnOnce() -> Result<T, sdam_live::Error>,
) -> Result<&T, sdam_live::Error> {
    if let Some(started) = cell.get() {
        return Ok(started);
    }
    let started = start()?;
    Ok(cell.get_or_init(|| started))
}

fn reset(mongod: &Mongod) -> Result<(), sdam_live::Error> {
    for name in ["failCommand", "onPrimaryTransactionalWrite"] {
        mongod.run_command("admin", doc! { "configureFailPoint": name, "mode": "off" })?;
    }
    Ok(())
}
