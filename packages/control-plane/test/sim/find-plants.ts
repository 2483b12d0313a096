/**
 * Searches the seeds for planted bugs: the checker can fail. plants.slow.test.ts and
 * plants.faults.test.ts use it.
 */
import { expect, it } from 'vitest';
import type { InvariantId } from '@berth/testbed/invariants';
import type { PlantName } from './plants.ts';
import { run, type RunOptions } from './run.ts';

const WITHIN = 200;
export const FOUND_BY: Record<Exclude<PlantName, 'none'>, readonly InvariantId[]> = {
  'lease check off': ['one-lease'],
  'retire before route': ['running-is-routed', 'old-serves'],
  'ports of the engine': ['own-host'],
  'two projects at one address': ['own-host'],
  'restored route unchecked': ['own-host'],
  'branch read once': ['own-branch'],
  'replace of the old version': ['one-writer'],
  'missing volume given up': ['volume-stays', 'volume-kept', 'bounded'],
  'proof of an older copy': ['newest-data'],
  'lost compare-and-set': [
    'no-surprise',
    'one-serving',
    'running-is-routed',
    'acknowledged-stays',
    'report-once',
    'settles',
  ],
  'double claim': ['one-lease'],
  'second writer': ['one-writer'],
  'two machines with one hostname': ['route-observed', 'running-is-routed', 'one-writer'],
  'a node handed over': [
    'one-writer',
    'route-observed',
    'running-is-routed',
    'old-serves',
    'one-serving',
  ],
  'deadlines by the machine’s clock': ['uptime'],
  'lists by the machine’s clock': ['one-writer'],
  'look covers later pushes': ['last-push'],
  'repeated delivery accepted': ['push-once'],
  'verdict replaced': ['one-verdict'],
  'refused status counts as sent': ['last-status'],
  'sent status forgotten': ['status-once'],
  'stop only in the database': ['stop-rests'],
  'stop without its page': ['stop-rests'],
  'stop leaves deployments': ['stop-ends'],
  'scale starts a stopped project': ['stop-stays'],
  'push starts a stopped project': ['stop-stays'],
  'start of an older release': ['same-release'],
  'rollbacks toggle': ['rollback-goes-back'],
  'start forgets the volumes': ['volume-stays'],
  'drain forgets stopped projects': ['drain-empties'],
  'moved volume does not count': ['volume-kept'],
  'count stored only': ['count-kept'],
  'servers of two versions': ['one-version'],
  'scale without a drain': ['scale-serves'],
  'failover without a brake': ['brake'],
  'writers are scaled': ['one-writer'],
  'terminal state overwritten': ['terminal-stays'],
  'devices without leases': ['one-device-user'],
  'runs without leases': ['one-device-user'],
  'workers counted once': ['workers-kept'],
  'marks in memory': ['runs-once'],
  'missed times forgotten': ['no-silent-gap'],
  'release command not awaited': ['release-serves'],
  'no page without web': ['page-without-web'],
  'web of the version before stays': ['page-without-web'],
  'page before the processes': ['started-first'],
};

/** Bugs that the first seeds find, in a few seconds. */
export const QUICK_PLANTS: readonly (keyof typeof FOUND_BY)[] = [
  'lease check off',
  'retire before route',
  'repeated delivery accepted',
  'sent status forgotten',
  'stop without its page',
  'stop leaves deployments',
  'terminal state overwritten',
  'no page without web',
  'page before the processes',
];

/** The bug shows only after one rare fault, or in some runs. */
const FAVOURED: Record<string, Partial<RunOptions>> = {
  'lists by the machine’s clock': { unseenMoves: 60 },
  'push starts a stopped project': { quietStops: 1 },
  'drain forgets stopped projects': { quietStops: 1 },
  'refused status counts as sent': { withStatuses: 1 },
  'sent status forgotten': { withStatuses: 1 },
  'rollbacks toggle': { rollbacks: 0.3 },
  'proof of an older copy': { restless: true, changes: 1 },
  'start forgets the volumes': { restless: true },
  'moved volume does not count': { restless: true },
  'ports of the engine': { crowded: 1 },
  'restored route unchecked': { takesPorts: true },
  'branch read once': { changes: 1 },
  'replace of the old version': { changes: 1 },
  'missing volume given up': { restless: true },
  'two projects at one address': { takesPorts: true },
  'scale starts a stopped project': { scales: 1, zeros: 0.5, quietStops: 1 },
  'count stored only': { scales: 1 },
  'servers of two versions': { scales: 1 },
  // The loop that ends instances has a long period in the simulator.
  'scale without a drain': { scales: 1, scaledDrainSeconds: 15 },
  'failover without a brake': { scales: 1, losses: 0.6 },
  'writers are scaled': { scales: 1 },
  'devices without leases': { scales: 1, devices: 1 },
  'runs without leases': { jobs: 1, scales: 1, devices: 1 },
  'workers counted once': { scales: 1, workers: 1 },
  'marks in memory': { jobs: 1 },
  'missed times forgotten': { jobs: 1 },
  'release command not awaited': { jobs: 1 },
  'no page without web': { withoutWeb: 1 },
  'web of the version before stays': { withoutWeb: 1 },
  'page before the processes': { withoutWeb: 1 },
};

/**
 * The seeds that find rare bugs at present. They are tried first, because a search from seed 1
 * takes up to a minute.
 */
const TRIED_FIRST: Partial<Record<PlantName, number>> = {
  'lists by the machine’s clock': 120,
  'start of an older release': 8,
  'drain forgets stopped projects': 12,
  'push starts a stopped project': 12,
  'scale starts a stopped project': 20,
  'start forgets the volumes': 2,
  'moved volume does not count': 5,
  'lost compare-and-set': 56,
  'look covers later pushes': 152,
  'double claim': 12,
  'second writer': 16,
  'a node handed over': 28,
  'deadlines by the machine’s clock': 12,
  'lease check off': 26,
  'retire before route': 17,
  'repeated delivery accepted': 2,
  'sent status forgotten': 3,
  'stop without its page': 1,
  'stop leaves deployments': 3,
  'terminal state overwritten': 37,
  'ports of the engine': 8,
  'rollbacks toggle': 8,
  'two machines with one hostname': 14,
  'two projects at one address': 26,
  'proof of an older copy': 2,
  'restored route unchecked': 8,
  'missing volume given up': 40,
  'marks in memory': 5,
  'runs without leases': 45,
  'no page without web': 6,
  'web of the version before stays': 14,
  'page before the processes': 44,
  'scale without a drain': 24,
};

/**
 * Asserts that each of these bugs is found within 200 seeds, by the invariant that the bug breaks.
 */
export function findPlants(plants: readonly (keyof typeof FOUND_BY)[]): void {
  it.each(plants)(`%s is found within ${WITHIN} seeds`, { timeout: 300_000 }, async (plant) => {
    const invariants = FOUND_BY[plant];
    const found = new Set<string>();
    const likely = TRIED_FIRST[plant];
    const seeds = [
      ...(likely === undefined ? [] : [likely]),
      ...Array.from({ length: WITHIN }, (_, i) => i + 1),
    ];
    for (const seed of seeds) {
      if (invariants.some((i) => found.has(i))) break;
      const { violations } = await run({
        seed,
        plant,
        restless: false,
        changes: 0,
        scales: 0,
        ...FAVOURED[plant],
      });
      for (const { invariant } of violations) found.add(invariant);
    }
    expect(
      invariants.filter((i) => found.has(i)),
      `found: ${[...found].join(', ')}`,
    ).not.toEqual([]);
  });
}
