/**
 * Detects two machines that register under the same name. Each start of an agent has a new
 * `boot_id`. If an old `boot_id` registers twice after a new one was accepted, both processes are
 * running: the node stays with the first process, and the second gets 409 `node_doubled` until the
 * first has been silent for OFFLINE_AFTER. A single late registration is ignored, because a request
 * of a killed process can arrive after the first request of its successor.
 *
 * A new process at another address without the node's own secret is refused at once, because
 * accepting it would move the node's routes to another machine. Once the first process has been
 * silent for OFFLINE_AFTER, the new process gets the name, but as a new node: the first machine
 * might only be disconnected and still run the containers. Pure.
 */
export type Doubled = {
  boot_id: string;
  host_ip: string;
  /**
   * `boot`: refused by this module. Either the process and the node's process register in turns, or
   * it has a different address and not the node's own secret. `secret`: its credential was refused
   * (store/node-registration.ts).
   */
  why: 'boot' | 'secret';
  since: number;
  last_seen_at: number;
};
export type Boots = {
  /** The process before the current one. `returns`: number of its registrations since then. */
  previous: { boot_id: string; last_seen_at: number; returns: number } | null;
  /** A second process that uses this node's name; Berth refuses it. */
  doubled: Doubled | null;
};
export type BootStep = {
  /**
   * `taken`: the registration is accepted; `ignored`: it changes nothing; `refused`: 409
   * node_doubled; `other_node`: it belongs to another node.
   */
  verdict: 'taken' | 'ignored' | 'refused' | 'other_node';
  boots: Boots | null;
};
/** `isSilent`: the node has been silent for the offline time (domain/nodes/offline.ts). */
type Present = {
  boot_id: string | null;
  host_ip: string;
  last_seen_at: number;
  isSilent: boolean;
  boots: Boots | null;
};
/**
 * `isProven`: the process sent the node's own secret, or an admin has admitted the node. A new
 * address then counts as the same machine.
 */
type Given = { boot_id: string | null; host_ip: string; isProven: boolean };

/**
 * Number of registrations after which an old `boot_id` counts as a running process. Fewer might be
 * late requests.
 */
const RETURNS_OF_A_RUNNING_PROCESS = 2;

export function bootStep(
  node: Present,
  { isProven, ...given }: Given,
  at: number,
  offlineMs: number,
): BootStep {
  const boots = fresh(node.boots, at, offlineMs);
  const taken = (next: Boots | null): BootStep => ({ verdict: 'taken', boots: next });
  if (given.boot_id !== null && given.boot_id === node.boot_id) return taken(boots);
  const isElsewhere = !isProven && given.host_ip !== node.host_ip;
  if (node.isSilent)
    return isElsewhere ? { verdict: 'other_node', boots: node.boots } : taken(null);
  // Two contract-only agents cannot be told apart from one whose address changed.
  if (given.boot_id === null && (node.boot_id === null || !isElsewhere)) return taken(null);

  const { doubled, previous } = boots ?? { doubled: null, previous: null };
  const process = { ...given, boot_id: given.boot_id ?? '' };
  if (doubled !== null && isOther(doubled, node, process))
    return {
      verdict: 'refused',
      boots: { previous, doubled: { ...doubled, ...process, last_seen_at: at } },
    };
  // A new process at another address without the node's secret counts as another machine. Accepting
  // it would move the routes there.
  if (isElsewhere) {
    const since = doubled?.boot_id === process.boot_id ? doubled.since : at;
    return {
      verdict: 'refused',
      boots: { previous, doubled: { ...process, why: 'boot', since, last_seen_at: at } },
    };
  }
  if (node.boot_id === null) return taken(null);
  if (previous?.boot_id === given.boot_id) {
    const returns = previous.returns + 1;
    if (returns < RETURNS_OF_A_RUNNING_PROCESS)
      return {
        verdict: 'ignored',
        boots: { doubled, previous: { ...previous, returns, last_seen_at: at } },
      };
    const { boot_id, host_ip, last_seen_at } = node;
    return taken({
      previous: null,
      doubled: { boot_id, host_ip, why: 'boot', since: at, last_seen_at },
    });
  }
  return taken({
    doubled,
    previous: { boot_id: node.boot_id, last_seen_at: node.last_seen_at, returns: 0 },
  });
}

/** Returns whether the process is on the refused machine (`doubled`). */
const isOther = (doubled: Doubled, node: Present, given: Omit<Given, 'isProven'>): boolean =>
  doubled.why === 'boot' &&
  (doubled.boot_id === given.boot_id ||
    (given.host_ip === doubled.host_ip && given.host_ip !== node.host_ip));

/**
 * Removes processes that have been silent for the offline time, and processes whose times are far
 * in the future because the clock was set back.
 */
function fresh(boots: Boots | null, at: number, offlineMs: number): Boots | null {
  const heard = <T extends { last_seen_at: number }>(one: T | null): T | null =>
    one === null || Math.abs(at - one.last_seen_at) >= offlineMs ? null : one;
  const [previous, doubled] = [heard(boots?.previous ?? null), heard(boots?.doubled ?? null)];
  return previous === null && doubled === null ? null : { previous, doubled };
}
