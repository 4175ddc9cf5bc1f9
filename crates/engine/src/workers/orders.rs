//! What the operator says goes to every loop, and what they answer is put together.

use futures_util::future::join_all;

use super::local::lock;
use super::merge;
use super::pool::Pool;
use crate::EngineHandle;
use crate::stats::{EngineStats, Recent};
use crate::trace::Trace;
use forebay_core::report::BlockUse;
use forebay_core::request::RequestError;
use forebay_core::scheduler::thermal::{Level, Reading};
use forebay_core::units::Micros;
use forebay_core::workers::balance::Balancer;
use forebay_turn::control::{ChangeSet, Changed};
use forebay_turn::history::Record;
use forebay_turn::stats::LiveSequence;

impl Pool {
    /// The loops that live.
    fn engines(&self) -> Vec<EngineHandle> {
        self.locals().filter_map(|(_, local)| local.handle()).collect()
    }

    /// What all loops answer; those that died meanwhile are left out, unless all have.
    async fn ask<T, A>(&self, question: impl Fn(EngineHandle) -> A) -> Result<Vec<T>, RequestError>
    where
        A: Future<Output = Result<T, RequestError>>,
    {
        let answers = join_all(self.engines().into_iter().map(question)).await;
        let mut heard = Vec::new();
        let mut failed = RequestError::EngineStopped;
        for answer in answers {
            match answer {
                Ok(answer) => heard.push(answer),
                Err(RequestError::EngineStopped) => {}
                Err(error) => failed = error,
            }
        }
        if heard.is_empty() { Err(failed) } else { Ok(heard) }
    }

    /// Of all loops together.
    pub async fn stats(&self) -> Result<EngineStats, RequestError> {
        let all = self.ask(|engine| async move { engine.stats().await }).await?;
        merge::stats(all).ok_or(RequestError::EngineStopped)
    }

    /// All live sequences.
    pub async fn requests(&self) -> Result<Vec<LiveSequence>, RequestError> {
        Ok(self.ask(|engine| async move { engine.requests().await }).await?.concat())
    }

    /// The newest sequences of each loop with their traces: live ones, then ended ones, at most `most` of each.
    pub async fn recent(&self, most: usize) -> Result<Vec<Recent>, RequestError> {
        Ok(self.ask(|engine| async move { engine.recent(most).await }).await?.concat())
    }

    /// Of each loop, what its blocks are used for. Comes once no step runs.
    pub async fn blocks(&self) -> Result<Vec<Vec<BlockUse>>, RequestError> {
        self.ask(|engine| async move { engine.blocks().await }).await
    }

    /// Of each sequence of a request; empty if it is unknown or forgotten. One that was begun again elsewhere has several.
    pub async fn traces(&self, id: String) -> Result<Vec<Trace>, RequestError> {
        Ok(self.ask(|engine| traces(engine, id.clone())).await?.into_iter().flatten().collect())
    }

    /// Ends a request; its clients hear [`RequestError::Aborted`]. Returns how many sequences it had.
    pub async fn cancel(&self, id: String) -> Result<usize, RequestError> {
        Ok(self.ask(|engine| cancel(engine, id.clone())).await?.into_iter().sum())
    }

    /// Puts a set of changes in force in all loops, or in none: they are tuned alike, so what one refuses all refuse. One
    /// [`forebay_turn::control::Change`] is a set of one.
    pub async fn change(&self, set: impl Into<ChangeSet>) -> Result<Vec<Changed>, RequestError> {
        let set = set.into();
        let changed = self.ask(|engine| change(engine, set.clone())).await?;
        lock(&self.0.orders).note(&set);
        Ok(changed.into_iter().next().unwrap_or_default())
    }

    /// Who takes the requests to come is chosen so from now on; `None` where it was chosen so before. What is under way stays
    /// where it is.
    pub fn balance(&self, balancer: Balancer) -> Option<Changed> {
        let before = self.board(|board| board.set_balancer(balancer));
        let changed = || Changed { what: "balancer".into(), from: before.name().into(), to: balancer.name().into() };
        (before != balancer).then(changed)
    }

    pub async fn pause(&self) -> Result<(), RequestError> {
        lock(&self.0.orders).paused = true;
        self.ask(|engine| async move { engine.pause().await }).await.map(|_| ())
    }

    pub async fn resume(&self) -> Result<(), RequestError> {
        lock(&self.0.orders).paused = false;
        self.ask(|engine| async move { engine.resume().await }).await.map(|_| ())
    }

    /// Holds a thermal level, or returns to the sensor's. Returns the level before.
    pub async fn force_thermal(&self, force: Option<Level>) -> Result<Level, RequestError> {
        lock(&self.0.orders).thermal = force;
        let levels = self.ask(|engine| async move { engine.force_thermal(force).await }).await?;
        levels.into_iter().max().ok_or(RequestError::EngineStopped)
    }

    /// Heard by the loops that live; one that is being begun again hears the next.
    pub async fn temperature(&self, reading: Reading) {
        let _ = self.ask(|engine| async move { engine.temperature(reading).await }).await;
    }

    /// Of each loop, what came lately.
    pub async fn history(&self, window: Micros) -> Result<Vec<Record>, RequestError> {
        self.ask(|engine| async move { engine.history(window).await }).await
    }

    pub async fn reset_stats(&self) -> Result<(), RequestError> {
        self.ask(|engine| async move { engine.reset_stats().await }).await.map(|_| ())
    }

    /// Returns when nothing is under way anywhere; new requests are refused from now on.
    pub async fn drain(&self) {
        self.set_draining();
        // A loop that has ended has nothing left to run.
        let _ = self.ask(|engine| async move { engine.drain().await }).await;
        self.until(|pool| pool.is_ending() || pool.board(|board| board.pending()) == 0).await;
    }

    /// Ends what is under way, and the loops.
    pub async fn shutdown(&self) {
        self.set_draining();
        self.set_ending();
        let _ = self.ask(|engine| async move { engine.shutdown().await }).await;
    }

    /// Tells a new loop what the one before it was told.
    pub(super) async fn brief(&self, engine: &EngineHandle) -> Result<(), RequestError> {
        let (set, paused, thermal) = {
            let orders = lock(&self.0.orders);
            (orders.set.clone(), orders.paused, orders.thermal)
        };
        if set != ChangeSet::default() {
            engine.change(set).await?;
        }
        if paused {
            engine.pause().await?;
        }
        if thermal.is_some() {
            engine.force_thermal(thermal).await?;
        }
        Ok(())
    }
}

async fn traces(engine: EngineHandle, id: String) -> Result<Vec<Trace>, RequestError> {
    engine.traces(id).await
}

async fn cancel(engine: EngineHandle, id: String) -> Result<usize, RequestError> {
    engine.cancel(id).await
}

async fn change(engine: EngineHandle, set: ChangeSet) -> Result<Vec<Changed>, RequestError> {
    engine.change(set).await
}
