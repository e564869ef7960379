//! The alphabets of steps for searches.

use crate::step::{Failure, MEMBERS, OperationError, Release, Reply, Role, Step};

/// Returns steps for two elections and two configurations, by both rules, where every member may
/// be lost in every way.
pub fn elections() -> Vec<Step> {
    let mut replies = vec![Reply::member(Role::Secondary)];
    for (election, config) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        for release in [Release::V4_0, Release::V6_0] {
            replies.push(Reply {
                election,
                config,
                release,
                ..Reply::member(Role::Primary)
            });
        }
    }
    on_all(
        &replies,
        &[Failure::Network],
        &[OperationError::Broken, OperationError::NotPrimary(0)],
    )
}

/// Returns steps for every role, members that join and leave, primary hints and wrong names.
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
            Reply {
                hosts: 0b011,
                ..member
            },
            Reply {
                foreign: true,
                ..member
            },
            Reply {
                misnamed: true,
                ..member
            },
        ]);
    }
    replies.push(Reply {
        hint: 1,
        ..Reply::member(Role::Secondary)
    });
    let mut steps = on_all(&replies, &[Failure::Timeout], &[OperationError::Broken]);
    steps.extend([Step::Hosts(0b111), Step::Hosts(0b001)]);
    steps
}

/// Returns steps with old and new topology versions in replies, failed checks and errors, with
/// late connections and with dead monitors.
pub fn errors() -> Vec<Step> {
    let mut replies = Vec::new();
    for (role, version) in [
        (Role::Primary, 0),
        (Role::Primary, 1),
        (Role::Primary, 2),
        (Role::Secondary, 0),
        (Role::Secondary, 2),
    ] {
        replies.push(Reply {
            version,
            ..Reply::member(role)
        });
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
        steps.push(Step::MonitorDied { on });
        for late in [false, true] {
            for &reply in &replies {
                steps.push(Step::Handshake { on, reply, late });
            }
        }
    }
    steps
}

/// Returns the steps of all alphabets.
pub fn everything() -> Vec<Step> {
    let mut steps = elections();
    for step in membership().into_iter().chain(errors()) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps
}

fn on_all(replies: &[Reply], failures: &[Failure], complaints: &[OperationError]) -> Vec<Step> {
    let mut steps = Vec::new();
    for on in 0..MEMBERS {
        steps.extend(replies.iter().map(|&reply| Step::Reply { on, reply }));
        steps.extend(
            failures
                .iter()
                .map(|&failure| Step::Failure { on, failure }),
        );
        for &error in complaints {
            steps.extend([false, true].map(|late| Step::Error { on, error, late }));
        }
    }
    steps
}
