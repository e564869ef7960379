/// Creates the pool of each server that joins the topology.
#[derive(Debug)]
struct Pools;

#[derive(Debug)]
struct Pool {
    context: PoolContext,
    /// The error of check-outs; `None` while the pool is ready.
    refusal: Mutex<Option<Error>>,
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, context: PoolContext) -> Pool {
        let refusal = Mutex::new(Some(Error::pool_not_ready(&context.address)));
        Pool { context, refusal }
    }
}

impl PoolHandle for Pool {
    fn ready(&self) {
        self.refuse(None);
    }

    fn clear(&self, clear: &PoolClear) {
        self.refuse(Some(Error::pool_cleared(&self.context.address, &clear.cause)));
    }

    fn close(&self) {
        self.refuse(Some(Error::pool_closed(&self.context.address)));
    }
}

impl Pool {
    async fn open(&self) -> Result<Established, Error> {
        let refusal = self.refusal.lock().unwrap().clone();
        refusal.map_or(Ok(()), Err)?;
        let connection = self.context.establish(Some(Duration::from_secs(10))).await?;
        if connection.is_stale() {
            connection.close(); // a clear came in between
            return Err(Error::stale_connection(&self.context.address));
        }
        Ok(connection)
    }

    /// Sets the error of check-outs. A closed pool stays closed.
    fn refuse(&self, error: Option<Error>) {
        let mut refusal = self.refusal.lock().unwrap();
        let kind = refusal.as_ref().map(Error::kind);
        if kind != Some(ErrorKind::PoolClosed) {
            *refusal = error;
        }
    }
}
