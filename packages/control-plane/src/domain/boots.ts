/**
 * Two machines under one name (correctness.md 12). Each start of an agent has a boot_id of its own, so a restart brings a new one and
 * the old one is never heard of again. One that is heard of again, twice, runs beside the new one: then the first stays, and the other
 * is refused until the first has been silent for the offline time. Once is not enough: a request of a process that was just killed
 * may arrive after the first request of its successor. A new process at another address that does not show the node's own secret is
 * refused at once: taken once, it would move the node's routes to its own machine. After the offline time it may have the name, but not
 * the node: the first machine may only be cut off, and still run what the node was given. Pure.
 */
export type Doubled = {
  boot_id: string;
  host_ip: string;
  /** boot: it alternated with the present one; secret: it registers without the node's own secret. */
  why: 'boot' | 'secret';
  since: number;
  last_seen_at: number;
};
export type Boots = {
  /** The process before the present one. `returns`: how often it was heard of since. */
  previous: { boot_id: string; last_seen_at: number; returns: number } | null;
  /** Another process that runs under this node's name, and is refused. */
  doubled: Doubled | null;
};
export type BootStep = {
  /** taken: this report counts; ignored: it is answered and changes nothing; refused: 409 node_doubled; another: it is another node's. */
  verdict: 'taken' | 'ignored' | 'refused' | 'another';
  boots: Boots | null;
};
/** `isSilent`: not heard of for the offline time (domain/silence.ts). */
type Present = { boot_id: string | null; host_ip: string; last_seen_at: number; isSilent: boolean; boots: Boots | null };
/** `isProven`: it showed the node's own secret, or an admin lets it in. A new address is then taken as that of the same machine. */
type Given = { boot_id: string | null; host_ip: string; isProven: boolean };

const RETURNS = 2;

export function bootStep(node: Present, { isProven, ...given }: Given, at: number, offlineMs: number): BootStep {
  const boots = fresh(node.boots, at, offlineMs);
  const taken = (next: Boots | null): BootStep => ({ verdict: 'taken', boots: next });
  if (given.boot_id !== null && given.boot_id === node.boot_id) return taken(boots);
  const isElsewhere = !isProven && given.host_ip !== node.host_ip;
  if (node.isSilent) return isElsewhere ? { verdict: 'another', boots: node.boots } : taken(null);
  // Two contract-only agents cannot be told from one whose address changed.
  if (given.boot_id === null && (node.boot_id === null || !isElsewhere)) return taken(null);

  const { doubled, previous } = boots ?? { doubled: null, previous: null };
  const process = { ...given, boot_id: given.boot_id ?? '' };
  if (doubled !== null && isOther(doubled, node, process))
    return { verdict: 'refused', boots: { previous, doubled: { ...doubled, ...process, last_seen_at: at } } };
  // Without the node's secret a new process at another address is another machine: taking it once would move the routes there.
  if (isElsewhere) {
    const since = doubled?.boot_id === process.boot_id ? doubled.since : at;
    return { verdict: 'refused', boots: { previous, doubled: { ...process, why: 'boot', since, last_seen_at: at } } };
  }
  if (node.boot_id === null) return taken(null);
  if (previous?.boot_id === given.boot_id) {
    const returns = previous.returns + 1;
    if (returns < RETURNS) return { verdict: 'ignored', boots: { doubled, previous: { ...previous, returns, last_seen_at: at } } };
    const { boot_id, host_ip, last_seen_at } = node;
    return taken({ previous: null, doubled: { boot_id, host_ip, why: 'boot', since: at, last_seen_at } });
  }
  return taken({ doubled, previous: { boot_id: node.boot_id, last_seen_at: node.last_seen_at, returns: 0 } });
}

/** The other machine, or a new process on it. */
const isOther = (doubled: Doubled, node: Present, given: Omit<Given, 'isProven'>): boolean =>
  doubled.why === 'boot' && (doubled.boot_id === given.boot_id || (given.host_ip === doubled.host_ip && given.host_ip !== node.host_ip));

/** Without what was not heard of for the offline time. A time that lies further in the future is of before the clock was set back. */
function fresh(boots: Boots | null, at: number, offlineMs: number): Boots | null {
  const heard = <T extends { last_seen_at: number }>(one: T | null): T | null =>
    one === null || Math.abs(at - one.last_seen_at) >= offlineMs ? null : one;
  const [previous, doubled] = [heard(boots?.previous ?? null), heard(boots?.doubled ?? null)];
  return previous === null && doubled === null ? null : { previous, doubled };
}
