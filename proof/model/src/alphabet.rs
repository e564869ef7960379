//! The sets of steps ("alphabets") that searches take in every state.

use crate::step::{
    Failure, Kind, Link, MEMBERS, MemberStep, OperationError, Release, Reply, Request, Role,
    ServiceStep, Step, Which,
};

/// Returns steps with two elections and two configurations, which old and new servers compare by
/// different rules. Every member can fail in every way.
pub fn elections() -> Vec<Step> {
    let mut replies = vec![Reply::member(Role::Secondary)];
    for (election, config) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        for release in [Release::V4_0, Release::V6_0] {
            replies.push(Reply { election, config, release, ..Reply::member(Role::Primary) });
        }
    }
    on_all(&replies, &[Failure::Network], &[OperationError::Broken, OperationError::NotPrimary(0)])
}

/// Returns steps with every role, members that join and leave, primary hints, and wrong set names.
pub fn membership() -> Vec<Step> {
    let mut replies: Vec<Reply> = [
        Role::Unknown,
        Role::Standalone,
        Role::Mongos,
        Role::Primary,
        Role::Secondary,
        Role::Arbiter,
        Role::Other,
        Role::Ghost,
    ]
    .map(Reply::member)
    .into();
    for role in [Role::Primary, Role::Secondary] {
        let member = Reply::member(role);
        replies.extend([
            Reply { hosts: 0b011, ..member },
            Reply { foreign: true, ..member },
            Reply { misnamed: true, ..member },
        ]);
    }
    replies.push(Reply { hint: 1, ..Reply::member(Role::Secondary) });
    let mut steps = on_all(&replies, &[Failure::Timeout], &[OperationError::Broken]);
    steps.extend([Step::Hosts(0b111), Step::Hosts(0b001)]);
    steps
}

/// Returns steps with old and new topology versions (in replies, failed checks and errors), with
/// connections of earlier pool generations, and with transports that panic.
pub fn errors() -> Vec<Step> {
    let mut replies = Vec::new();
    for (role, version) in [
        (Role::Primary, 0),
        (Role::Primary, 1),
        (Role::Primary, 2),
        (Role::Secondary, 0),
        (Role::Secondary, 2),
    ] {
        replies.push(Reply { version, ..Reply::member(role) });
    }
    let failures = [
        Failure::Network,
        Failure::Timeout,
        Failure::Command(0),
        Failure::Command(1),
        Failure::Command(2),
    ];
    let complaints = [
        OperationError::Broken,
        OperationError::Timeout,
        OperationError::Overloaded,
        OperationError::Auth,
        OperationError::NotPrimary(0),
        OperationError::NotPrimary(1),
        OperationError::NotPrimary(2),
        OperationError::ShuttingDown(0),
        OperationError::ShuttingDown(2),
        OperationError::DuplicateKey,
    ];
    let mut steps = on_all(&replies, &failures, &complaints);
    for on in 0..MEMBERS {
        steps.push(Step::Member(on, MemberStep::Failure(Failure::Panic)));
        for late in [false, true] {
            for &reply in &replies {
                steps.push(Step::Member(on, MemberStep::Handshake { reply, late }));
            }
        }
    }
    steps
}

/// Returns every input for a set with a single member.
pub fn one_server() -> Vec<Step> {
    let alone = |role, version| Reply { hosts: 0b001, version, ..Reply::member(role) };
    let (check, ping) = links(0);
    let primary = alone(Role::Primary, 1);
    let newer = alone(Role::Secondary, 2);
    let silent = alone(Role::Primary, 0);
    let foreign = Reply { foreign: true, ..primary };
    let mut steps = vec![
        Step::Member(0, MemberStep::Due { wanted: false }),
        Step::Member(0, MemberStep::Due { wanted: true }),
        Step::Connected(check),
        Step::Connected(ping),
        Step::Member(0, MemberStep::CheckRequested),
    ];
    for (reply, more) in [
        (primary, false),
        (primary, true),
        (newer, false),
        (newer, true),
        (silent, false),
        (foreign, false),
    ] {
        steps.push(answer(check, reply, more));
    }
    steps.push(answer(ping, primary, false));
    for failure in [Failure::Network, Failure::Command(0), Failure::Panic] {
        steps.extend([check, ping].map(|link| Step::Break { link, failure }));
    }
    for error in
        [OperationError::Broken, OperationError::NotPrimary(0), OperationError::ShuttingDown(2)]
    {
        steps.extend([false, true].map(|late| Step::Member(0, MemberStep::Error { error, late })));
    }
    for late in [false, true] {
        steps.push(Step::Member(0, MemberStep::Handshake { reply: primary, late }));
    }
    steps.extend([
        Step::Member(0, MemberStep::Burst(primary)),
        Step::Member(0, MemberStep::Handshake { reply: silent, late: false }),
        Step::Member(0, MemberStep::Deserted),
        Step::Suspended,
    ]);
    steps
}

/// Returns the steps for two members that answer, stop answering, or fail.
pub fn silence() -> Vec<Step> {
    let mut steps = vec![Step::Suspended];
    for (on, role) in [(0, Role::Primary), (1, Role::Secondary)] {
        let (check, _) = links(on);
        let reply = Reply { hosts: 0b011, ..Reply::member(role) };
        steps.extend([
            Step::Member(on, MemberStep::Due { wanted: false }),
            Step::Connected(check),
            answer(check, reply, false),
            Step::Member(on, MemberStep::Handshake { reply, late: false }),
            Step::Break { link: check, failure: Failure::Command(0) },
            Step::Member(on, MemberStep::Error { error: OperationError::Broken, late: false }),
            Step::Member(
                on,
                MemberStep::Error { error: OperationError::DuplicateKey, late: false },
            ),
        ]);
    }
    steps
}

/// Returns the steps for two members: one streams its replies and is probed by a detector, and the
/// other one answers.
pub fn trial() -> Vec<Step> {
    let reply = |role| Reply { hosts: 0b011, version: 1, ..Reply::member(role) };
    let (own, other) = (reply(Role::Primary), reply(Role::Secondary));
    let (check, ping) = links(0);
    let probe = Link { on: 0, kind: Kind::Probe };
    vec![
        Step::Member(0, MemberStep::Reply(own)),
        Step::Member(0, MemberStep::Due { wanted: false }),
        Step::Member(0, MemberStep::Late),
        Step::Member(0, MemberStep::Answered),
        Step::Connected(ping),
        Step::Connected(probe),
        answer(check, own, false),
        answer(ping, own, false),
        Step::Break { link: ping, failure: Failure::Network },
        Step::Break { link: probe, failure: Failure::Network },
        Step::Member(1, MemberStep::Reply(other)),
        Step::Member(1, MemberStep::Due { wanted: false }),
        Step::Member(1, MemberStep::Answered),
    ]
}

/// Returns the steps for a single-threaded client and a set with this number of members.
pub fn inline(members: u8) -> Vec<Step> {
    let mut steps = requests();
    steps.extend([Step::Wait, Step::Suspended]);
    for on in 0..members {
        let (check, _) = links(on);
        steps.extend([Step::Connected(check), Step::Chosen { server: on, idle: false }]);
        for role in [Role::Primary, Role::Secondary] {
            let reply = Reply { hosts: (1 << members) - 1, ..Reply::member(role) };
            steps.push(answer(check, reply, false));
        }
        steps.push(Step::Break { link: check, failure: Failure::Timeout });
        for error in [OperationError::Broken, OperationError::NotPrimary(0)] {
            let late = false;
            steps.push(Step::Member(on, MemberStep::Error { error, late }));
        }
        steps.push(Step::Member(on, MemberStep::Close));
    }
    steps
}

/// Returns the steps for a client whose SRV record names one to three hosts.
pub fn srv() -> Vec<Step> {
    let mut steps = vec![Step::LookUp, Step::Suspended];
    steps.extend([0b000, 0b001, 0b011, 0b110].map(Step::LookedUp));
    for on in 0..MEMBERS {
        for role in [Role::Mongos, Role::Primary] {
            let reply = Reply::member(role);
            steps.push(Step::Member(on, MemberStep::Reply(reply)));
        }
        let failure = Failure::Network;
        steps.push(Step::Member(on, MemberStep::Failure(failure)));
    }
    steps
}

/// Returns the inputs for a single-threaded client and a load balancer with one service.
pub fn balanced_inline() -> Vec<Step> {
    let mut steps = balanced(1);
    steps.extend(requests());
    steps.push(Step::Chosen { server: 0, idle: false });
    steps
}

/// Returns every input for a load balancer with one or two services, including inputs that the
/// deployment must ignore.
pub fn balanced(services: u8) -> Vec<Step> {
    let errors = [
        OperationError::Broken,
        OperationError::Timeout,
        OperationError::Overloaded,
        OperationError::Untrusted,
        OperationError::Auth,
        OperationError::NotPrimary(0),
        OperationError::ShuttingDown(0),
        OperationError::DuplicateKey,
    ];
    let (on, late, reply) = (0, false, Reply::member(Role::Mongos));
    let mut steps = vec![
        Step::Member(on, MemberStep::Handshake { reply, late }),
        Step::Hosts(0b010),
        Step::Suspended,
    ];
    steps.extend(errors.map(|error| Step::Member(on, MemberStep::Error { error, late })));
    for service in 0..services {
        steps.push(Step::Service(service, ServiceStep::Opened));
        for which in [Which::Newest, Which::Oldest, Which::Closed] {
            steps.push(Step::Service(service, ServiceStep::Closed(which)));
            steps.extend(
                errors.map(|error| Step::Service(service, ServiceStep::Error(which, error))),
            );
        }
    }
    steps
}

/// Returns the requests of a single-threaded client, its choices of a server, and the results of
/// its probes.
fn requests() -> Vec<Step> {
    let chosen = |server, idle| Step::Chosen { server, idle };
    let requests = [Request::Select, Request::Scan, Request::Check, Request::Settle];
    let mut steps = vec![chosen(MEMBERS, false), chosen(0, true)];
    steps.extend(requests.map(Step::Request));
    steps.extend([false, true].map(|alive| Step::Probed { alive }));
    steps
}

fn links(on: u8) -> (Link, Link) {
    (Link { on, kind: Kind::Check }, Link { on, kind: Kind::Ping })
}

fn answer(link: Link, reply: Reply, more: bool) -> Step {
    Step::Answer { link, reply, more }
}

fn on_all(replies: &[Reply], failures: &[Failure], complaints: &[OperationError]) -> Vec<Step> {
    let mut steps = Vec::new();
    for on in 0..MEMBERS {
        steps.extend(replies.iter().map(|&reply| Step::Member(on, MemberStep::Reply(reply))));
        steps
            .extend(failures.iter().map(|&failure| Step::Member(on, MemberStep::Failure(failure))));
        for &error in complaints {
            steps.extend(
                [false, true].map(|late| Step::Member(on, MemberStep::Error { error, late })),
            );
        }
    }
    steps
}
