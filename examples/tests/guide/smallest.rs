/// Creates the pool of each server that joins the topology.
#[derive(Debug)]
struct Pools;

#[derive(Debug)]
struct Pool {
    new: NewPool,
    /// The error of check-outs; `None` while the pool is ready.
    refusal: Mutex<Option<PoolError>>,
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, new: NewPool) -> Pool {
        let address = new.address.clone();
        let refusal = Mutex::new(Some(PoolError::NotReady { address }));
        Pool { new, refusal }
    }
}

impl PoolHandle for Pool {
    fn ready(&self) {
        self.refuse(None);
    }

    fn clear(&self, clear: &PoolClear) {
        let address = self.new.address.clone();
        self.refuse(Some(PoolError::cleared(address, clear)));
    }

    fn close(&self) {
        let address = self.new.address.clone();
        self.refuse(Some(PoolError::Closed { address }));
    }
}

impl Pool {
    async fn open(&self) -> Result<Established, Box<dyn Error + Send + Sync>> {
        let refusal = self.refusal.lock().unwrap().clone();
        refusal.map_or(Ok(()), Err)?;
        let connection = self.new.establish(Some(Duration::from_secs(10))).await?;
        if connection.is_stale() {
            connection.close(); // a clear came in between
            let address = self.new.address.clone();
            return Err(PoolError::Interrupted { address }.into());
        }
        Ok(connection)
    }

    /// Sets the error of check-outs. A closed pool stays closed.
    fn refuse(&self, error: Option<PoolError>) {
        let mut refusal = self.refusal.lock().unwrap();
        if !matches!(*refusal, Some(PoolError::Closed { .. })) {
            *refusal = error;
        }
    }
}
