use std::{future::poll_fn, sync::Arc};

use loom::{future::block_on, thread};
use sdam_core::{
    deployment::{ConnId, Role},
    ids::ServerId,
};
use sdam_events::sync::explore;

use crate::engine::orders::{Action, News, Order, Orders};

fn receive(orders: &Orders) -> News {
    block_on(poll_fn(|cx| orders.poll(cx)))
}

/// Calls `give` on a new thread, which then wakes the task.
fn wake_after(orders: &Arc<Orders>, give: impl FnOnce(&Orders) + Send + 'static) {
    let orders = Arc::clone(orders);
    thread::spawn(move || {
        give(&orders);
        orders.wake();
    });
}

fn disconnect(number: u64) -> Order {
    let conn = ConnId { server: ServerId::from_u64(1), role: Role::Check, number };
    Order { conn, action: Action::Disconnect }
}

#[test]
fn a_sleeping_task_receives_everything_that_is_left_for_it_once() {
    // Orders are neither lost nor repeated, so a connection is closed exactly once (F-72).
    explore(2, || {
        let orders = Arc::new(Orders::default());
        let leave: [fn(&Orders); 3] =
            [|orders| orders.push(disconnect(1)), Orders::look, Orders::check];
        for leave in leave {
            wake_after(&orders, leave);
        }
        let (mut disconnects, mut looks, mut checks) = (0, 0, 0);
        while disconnects + looks + checks < 3 {
            let news = receive(&orders);
            disconnects += news.orders.len();
            looks += usize::from(news.look);
            checks += usize::from(news.check);
            assert!(!news.end);
        }
        assert_eq!((disconnects, looks, checks), (1, 1, 1));
    });
}

#[test]
fn the_orders_of_several_threads_arrive_in_the_order_of_the_topology_lock() {
    // If a cancellation overtook a request, the request's connection would stay open (F-71).
    explore(3, || {
        let orders = Arc::new(Orders::default());
        // Simulates the topology lock.
        let given = Arc::new(loom::sync::Mutex::new(0));
        for _ in 0..2 {
            let given = Arc::clone(&given);
            wake_after(&orders, move |orders| {
                let mut given = given.lock().unwrap();
                *given += 1;
                orders.push(disconnect(*given));
            });
        }
        let mut received = Vec::new();
        while received.len() < 2 {
            received.extend(receive(&orders).orders.iter().map(|order| order.conn.number));
        }
        assert_eq!(received, [1, 2]);
    });
}

#[test]
fn an_end_is_visible_to_every_later_poll() {
    explore(3, || {
        let orders = Arc::new(Orders::default());
        for leave in [Orders::end, Orders::look] {
            wake_after(&orders, leave);
        }
        while !receive(&orders).end {}
        assert!(orders.is_ended());
        assert!(receive(&orders).end);
    });
}
