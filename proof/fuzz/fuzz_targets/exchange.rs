//! Sends requests and receives messages in any order, and checks that the exchange accepts only the
//! outstanding reply. After any other message, the exchange must reject everything.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sdam_core::{
    hello::HelloRequest,
    ids::{ObjectId, TopologyVersion},
};
use sdam_transport::wire::{Exchange, OpMsg, OpQuery, WireError, WireMessage};

const BODY: &[u8] = &[5, 0, 0, 0, 0];

/// The expected state of the exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Idle,
    /// A reply is due. It must name this request id; the flag is true if more replies may follow.
    Due(i32, bool),
    Broken,
}

fuzz_target!(|bytes: &[u8]| {
    let mut exchange = Exchange::new();
    let mut model = Model::Idle;
    for step in bytes.chunks_exact(2) {
        let (kind, argument) = (step[0] % 8, step[1]);
        model = match kind {
            0 | 1 => request(exchange.command(BODY), model, false),
            2 => request(exchange.hello(&awaitable()), model, true),
            3 if argument == 0 => {
                exchange.break_off();
                Model::Broken
            }
            _ => accept(&mut exchange, model, kind, argument),
        };
        assert_eq!(exchange.is_usable(), model == Model::Idle);
    }
});

fn awaitable() -> HelloRequest {
    let known = TopologyVersion { process_id: ObjectId::default(), counter: 3 };
    HelloRequest::awaitable(true, None, known, Duration::from_secs(10))
}

fn request(sent: Result<WireMessage, WireError>, model: Model, may_stream: bool) -> Model {
    match model {
        Model::Idle => {
            let message = sent.expect("a request may be sent");
            Model::Due(message.request_id(), may_stream)
        }
        Model::Due(..) => {
            assert_eq!(sent, Err(WireError::ReplyOutstanding));
            model
        }
        Model::Broken => {
            assert_eq!(sent, Err(WireError::BrokenOff));
            model
        }
    }
}

fn accept(exchange: &mut Exchange, model: Model, kind: u8, argument: u8) -> Model {
    let due = match model {
        Model::Due(id, _) => id,
        Model::Idle | Model::Broken => 0,
    };
    // The message is usually the outstanding reply.
    let response_to = match argument % 8 {
        0 => due.wrapping_add(i32::from(argument / 8) - 16),
        _ => due,
    };
    let (request_id, more_to_come) = (1000 + i32::from(argument), kind == 5);
    let is_request = kind == 6;
    let message = if is_request {
        OpQuery { request_id, flags: 0, collection: "a.b", body: BODY }.encode()
    } else {
        OpMsg { request_id, response_to, more_to_come, body: BODY, ..OpMsg::default() }.encode()
    };
    let message = message.expect("the message can be written");
    let accepted = exchange.accept(&message);
    match model {
        Model::Due(id, may_stream)
            if !is_request && response_to == id && (may_stream || !more_to_come) =>
        {
            accepted.expect("the reply is due");
            if more_to_come { Model::Due(request_id, true) } else { Model::Idle }
        }
        _ => {
            assert!(accepted.is_err(), "{model:?} {message:?}");
            Model::Broken
        }
    }
}
