/**
 * Checks a history (history.ts) for what must hold whatever was killed, lost, repeated or late.
 * Pure: it reads only events, never the database. docs/invariants.md describes each invariant; a
 * test keeps the two lists equal.
 */
import type { HistoryEvent } from './history.ts';
import { factsOf, type HistoryFacts, type Violation } from './invariants/facts.ts';
import { checkContainersAndRoutes } from './invariants/containers.ts';
import { checkDevices } from './invariants/devices.ts';
import { checkHosts } from './invariants/hosts.ts';
import { checkInstances } from './invariants/instances.ts';
import { checkWorkers } from './invariants/workers.ts';
import { checkWithoutWeb } from './invariants/without-web.ts';
import { checkLeases } from './invariants/leases.ts';
import { checkPushes, checkStatuses } from './invariants/pushes.ts';
import { checkBranches, checkReleases } from './invariants/releases.ts';
import { checkReports, checkStates } from './invariants/states.ts';
import { checkStops } from './invariants/stops.ts';
import { checkRuns } from './invariants/runs.ts';
import { checkUptime } from './invariants/uptime.ts';
import { checkNewest, checkVolumes } from './invariants/volumes.ts';

export type { Violation } from './invariants/facts.ts';
export { INVARIANTS, type InvariantId } from './invariants/list.ts';

const CHECKS: readonly ((facts: HistoryFacts) => void)[] = [
  checkStates,
  checkLeases,
  checkReports,
  checkContainersAndRoutes,
  checkHosts,
  checkInstances,
  checkWorkers,
  checkWithoutWeb,
  checkRuns,
  checkDevices,
  checkUptime,
  checkPushes,
  checkStatuses,
  checkVolumes,
  checkNewest,
  checkStops,
  checkReleases,
  checkBranches,
  checkGauges,
  checkErrors,
];

/** Returns every violation in the history, the earliest first. */
export function check(history: readonly HistoryEvent[]): Violation[] {
  const violations: Violation[] = [];
  const facts = factsOf(history, violations);
  for (const checkFacts of CHECKS) checkFacts(facts);
  return violations.sort((a, b) => a.at - b.at);
}

function checkGauges({ all, broken }: HistoryFacts): void {
  for (const e of all('gauge'))
    if (e.value > e.bound) broken('bounded', e.at, `${e.name} is ${e.value}, more than ${e.bound}`);
}

function checkErrors({ all, broken }: HistoryFacts): void {
  for (const e of all('internal_error')) broken('no-surprise', e.at, e.message);
}
