/**
 * Two control planes on a real PostgreSQL. The seed decides the order of the calls; beyond them,
 * the server's locks and the sockets decide. A run is checked like any other, but the same seed is
 * not the same run.
 */
import type { Postgres } from '@berth/testbed/postgres';
import { openStores } from '../../src/store/open.ts';
import { quiet, type SimDatabase } from './database.ts';
import { createGate, type Gate } from './gate.ts';

const CONTROL_PLANES = 2;
const CALLS_AT_ONCE = 6;

/** Creates the database of one run: a copy of one that was migrated once. */
export async function onPostgres(
  pg: Postgres,
): Promise<(now: () => number) => Promise<SimDatabase>> {
  const template = 'sim_template';
  await (await openStores({ databaseUrl: await pg.createDatabase(template), log: quiet })).close();
  let made = 0;

  return async (now) => {
    const name = `sim_${++made}`;
    const url = await pg.createDatabase(name, template);
    const gates: Gate[] = [];
    const closing: Promise<void>[] = [];
    const onlooker = await openStores({ databaseUrl: url, log: quiet, now });
    const living = new Set<() => Promise<void>>();
    return {
      controlPlanes: CONTROL_PLANES,
      callsAtOnce: CALLS_AT_ONCE,
      onlooker: () => onlooker,
      async open(clock) {
        const gate = await createGate(pg.port);
        gates.push(gate);
        const through = new URL(url);
        through.port = String(gate.port);
        const stores = await openStores({
          databaseUrl: through.toString(),
          log: quiet,
          now: clock,
        });
        const close = (): Promise<void> => stores.close();
        living.add(close);
        const buried = (): void => {
          if (!living.delete(close)) return;
          gate.shut();
          // Its remaining writes are refused. Its pool and its notifier still end.
          closing.push(close().catch(() => undefined));
        };
        return {
          stores,
          kill: buried,
          wire: {
            drop: gate.drop,
            killAt: (n, moment, killed) =>
              gate.shutAt(n, moment, () => {
                buried();
                killed();
              }),
            spare: gate.spare,
          },
        };
      },
      async close() {
        await Promise.all([...living].map((end) => end()));
        await Promise.all([onlooker.close(), ...closing]);
        await Promise.all(gates.map((gate) => gate.close()));
        await pg.dropDatabase(name);
      },
    };
  };
}
