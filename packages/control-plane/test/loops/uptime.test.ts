/** The uptime clock runs while a control plane serves, and several control planes share it. */
import { beforeEach, describe, expect, it } from 'vitest';
import { createUptimeClock, isPast, type UptimeClock } from '../../src/domain/platform/uptime.ts';
import { open } from '../store/fixtures.ts';
import type { AllStores } from '../../src/store/open.ts';

const LEASE_MS = 30_000;
const START = 1_790_000_000_000;
let stores: AllStores;
let elapsed = 0;

beforeEach(async () => {
  elapsed = 0;
  stores = await open();
});

type Machine = { clock: UptimeClock; skew: number };
async function machine(): Promise<Machine> {
  const one = { skew: 0 } as Machine;
  const wall = (): number => START + elapsed + one.skew;
  one.clock = await createUptimeClock({
    store: stores.uptime,
    monotonic: () => elapsed,
    wall,
    leaseMs: LEASE_MS,
  });
  return one;
}
async function pass(ms: number, ...serving: Machine[]): Promise<void> {
  for (const end = elapsed + ms; elapsed < end; ) {
    elapsed += 1_000;
    for (const { clock } of serving) await clock.now();
  }
}
const at = async ({ clock }: Machine): Promise<number> => (await clock.now()).at - START;
const since = async ({ clock }: Machine): Promise<number> => (await clock.now()).since - START;

describe('the clock', () => {
  it('runs while it is read', async () => {
    const one = await machine();
    await pass(60_000, one);
    expect([await at(one), await since(one)]).toEqual([60_000, 0]);
  });
  it('stands still without a control plane, and service then starts again', async () => {
    const one = await machine();
    await pass(10_000, one);
    elapsed += 3_600_000;
    expect(await at(one)).toBeLessThanOrEqual(15_000);
    expect(await since(one)).toBe(await at(one));
  });
  it('continues after a restart', async () => {
    await pass(10_000, await machine());
    elapsed += 3_600_000;
    const next = await machine();
    expect([await at(next), await since(next)]).toEqual([10_000, 10_000]);
  });
  it.each([3_600_000, -3_600_000])(
    'does not jump by %i ms with the machine’s clock, and service starts again',
    async (jump) => {
      const one = await machine();
      await pass(10_000, one);
      one.skew = jump;
      await pass(10_000, one);
      expect([await at(one), await since(one)]).toEqual([20_000, 11_000]);
    },
  );
  it('stands still while the database does not answer', async () => {
    const one = await machine();
    await pass(10_000, one);
    const { raise } = stores.uptime;
    stores.uptime.raise = () => Promise.reject(new Error('away'));
    for (let i = 0; i < 60; i++) {
      elapsed += 1_000;
      await expect(one.clock.now()).rejects.toThrow('away');
    }
    stores.uptime.raise = raise;
    expect(await at(one)).toBeLessThanOrEqual(15_000);
    expect(await since(one)).toBe(await at(one));
  });
});

describe('two control planes', () => {
  it('a stalled one does not delay the other and takes its value afterwards', async () => {
    const [healthy, stalled] = [await machine(), await machine()];
    await pass(10_000, healthy, stalled);
    await pass(40_000, healthy);
    expect([await at(healthy), await since(healthy)]).toEqual([50_000, 0]);
    expect([await at(stalled), await since(stalled)]).toEqual([50_000, 50_000]);
  });
  it('one that restarts again and again does not give the other grace periods', async () => {
    const alive = await machine();
    const deadline = START + 20_000;
    for (let kills = 0; kills < 4; kills++) await pass(5_000, alive, await machine());
    expect([await at(alive), await since(alive)]).toEqual([20_000, 0]);
    // The service as a whole started 30 s ago, so its first grace period is over.
    await pass(10_000, alive);
    expect(isPast(deadline, await alive.clock.now(), LEASE_MS)).toBe(true);
  });
  it('a clock that is an hour off moves no deadline', async () => {
    const [one, other] = [await machine(), await machine()];
    other.skew = 3_600_000;
    await pass(10_000, one, other);
    expect([await at(one), await at(other)]).toEqual([10_000, 10_000]);
  });
  it('never run faster than time when the database is slow', async () => {
    const [one, other] = [await machine(), await machine()];
    const { raise } = stores.uptime;
    for (let round = 0; round < 60; round++) {
      const [slow, quick] = round % 2 === 0 ? [one, other] : [other, one];
      elapsed += 600;
      // The slow one measures its time, the quick one writes a later time, and the slow one's write
      // comes after that.
      let arrive = (): void => {};
      const way = new Promise<void>((resolve) => {
        arrive = resolve;
      });
      stores.uptime.raise = async (value) => {
        await way;
        return raise(value);
      };
      const late = slow.clock.now();
      stores.uptime.raise = raise;
      elapsed += 600;
      await quick.clock.now();
      arrive();
      await late;
      for (const { clock } of [slow, quick]) {
        const behind = START + elapsed - clock.estimate().at;
        expect(behind).toBeGreaterThanOrEqual(0);
        // At most the time between two beats, or one round trip to the database.
        expect(behind).toBeLessThanOrEqual(600);
      }
    }
  });
  it('does not count the time in which it read the clock at its start twice', async () => {
    const one = await machine();
    const { read } = stores.uptime;
    stores.uptime.read = async (initial) => {
      elapsed += 400;
      await one.clock.now();
      const value = await read(initial);
      return value;
    };
    elapsed += 600;
    const other = await machine();
    expect(other.clock.estimate().at - START).toBe(elapsed);
  });
});

describe('a deadline', () => {
  it('passes at once if service was not interrupted', () => {
    expect([
      isPast(100, { at: 100, since: -1e9 }, 50),
      isPast(100, { at: 101, since: -1e9 }, 50),
    ]).toEqual([false, true]);
  });
  it('passes a grace period after service starts again', () => {
    expect([
      isPast(100, { at: 149, since: 100 }, 50),
      isPast(100, { at: 150, since: 100 }, 50),
    ]).toEqual([false, true]);
  });
  it('passes after three grace periods, however often service is interrupted', () => {
    expect([
      isPast(100, { at: 249, since: 249 }, 50),
      isPast(100, { at: 250, since: 250 }, 50),
    ]).toEqual([false, true]);
  });
});
