//! Clients: some ask any master, some stay with a master that may have been replaced and read
//! there, and some write through the newest.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::Result;

use super::faults::Fault;
use super::history::Op;
use super::verbs::{Load, Swap};
use super::world::World;

const REGISTERS: u64 = 3;
const MS: u64 = 1_000;

/// The way of a client to choose a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    /// Any that says that it is one.
    Any,
    /// Stays with one master as long as that claims to serve, and only reads.
    Stays,
    /// Asks the master that began last.
    Newest,
}

const HABITS: [Habit; 8] = [
    Habit::Any,
    Habit::Any,
    Habit::Any,
    Habit::Stays,
    Habit::Stays,
    Habit::Stays,
    Habit::Newest,
    Habit::Newest,
];

/// A client and what it waits for.
pub struct Client {
    habit: Habit,
    due_us: u64,
    /// The number of the question, the register, and its place in the history.
    waits: Option<(u64, u8, usize)>,
    stays_with: Option<u64>,
}

/// The answer of a master: the client, the number of its question, and the result.
pub type Answer = (usize, u64, Result<u32>);

pub fn clients() -> Vec<Client> {
    let due = (0..).map(|number| 200 * MS * number);
    let client = |(habit, due_us)| Client { habit, due_us, waits: None, stays_with: None };
    HABITS.into_iter().zip(due).map(client).collect()
}

impl World {
    /// Takes what masters have answered; it comes some time later.
    pub fn collect(&mut self) {
        for answer in std::mem::take(&mut *self.answers.lock()) {
            let at_us = self.now_us + 500 + self.rng.below(8_000);
            self.arriving.push((at_us, answer));
        }
        let now_us = self.now_us;
        let arrived: Vec<_> = self.arriving.extract_if(.., |(at, _)| *at <= now_us).collect();
        for (_, (number, turn, answer)) in arrived {
            let client = &mut self.clients[number];
            let Some((_, register, call)) = client.waits.take_if(|(waited, ..)| *waited == turn)
            else {
                continue;
            };
            let rest_us = match (&answer, client.habit) {
                (Err(_), Habit::Any) => 300 * MS,
                (Err(_), _) => 50 * MS,
                (Ok(_), _) => 20 * MS,
            };
            client.due_us = now_us + rest_us + self.rng.below(2 * rest_us);
            if let Ok(found) = answer {
                self.history.end(register, call, found);
            }
        }
    }

    pub fn work(&mut self) {
        for number in 0..self.clients.len() {
            let client = &mut self.clients[number];
            if client.due_us > self.now_us {
                continue;
            }
            let rest_us = if client.habit == Habit::Any { 300 * MS } else { 20 * MS };
            if client.waits.take().is_some() {
                client.due_us = self.now_us + self.rng.below(rest_us);
                continue;
            }
            // So long it waits for an answer.
            let patience_us = match client.habit {
                Habit::Any => 4_000 * MS,
                Habit::Stays => 300 * MS,
                Habit::Newest => 400 * MS + self.rng.below(1_000 * MS),
            };
            client.due_us = self.now_us + patience_us;
            self.ask(number);
        }
    }

    fn choose(&self, client: &Client) -> Option<u64> {
        let begun = |id: &u64| self.begun(*id);
        let serving: Vec<u64> = self.ids().into_iter().filter(|id| begun(id).is_some()).collect();
        let any = serving.get(self.rng.below(serving.len().max(1) as u64) as usize).copied();
        match client.habit {
            Habit::Any => any,
            Habit::Stays => client.stays_with.filter(|id| serving.contains(id)).or(any),
            Habit::Newest => serving.into_iter().max_by_key(begun),
        }
    }

    /// Has a client ask a master, if there is one.
    fn ask(&mut self, number: usize) {
        let Some(id) = self.choose(&self.clients[number]) else {
            self.clients[number].due_us = self.now_us + 50 * MS;
            return;
        };
        let register = self.rng.below(REGISTERS) as u8;
        let swaps = match self.clients[number].habit {
            Habit::Any => self.rng.below(100) < 40,
            Habit::Stays => false,
            Habit::Newest => self.rng.below(100) < 80,
        };
        let is_spared = self.ending.iter().any(|begun| begun.fault == Fault::Spared(id));
        let op = if swaps && !is_spared { Op::Swap(self.history.next_value()) } else { Op::Load };
        let call = self.history.begin(register, op);
        self.turns += 1;
        let turn = self.turns;
        self.clients[number].stays_with = Some(id);
        self.clients[number].waits = Some((turn, register, call));
        let Some(place) = self.places.get_mut(&id) else { return };
        let Some((_, master)) = place.shown.master.lock().clone() else { return };
        let answers = Arc::clone(&self.answers);
        place.host.inside(move || {
            tokio::spawn(async move {
                let caller = Caller::system();
                let answer = match op {
                    Op::Load => master.read(&caller, Load(register)).await,
                    Op::Swap(value) => master.run(&caller, Swap(register, value)).await,
                };
                answers.lock().push((number, turn, answer));
            });
        });
    }
}
