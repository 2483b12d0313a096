/**
 * Chooses one of 10,000 nodes for a project with 100 datasets: the scheduler's choice against the
 * naive loop.
 */
import { createCacheIndex } from '@berth/control-plane/domain/nodes/cache-index';
import { DEFAULT_LIMITS } from '@berth/control-plane/domain/deployments/facts';
import { choose, type Question } from '@berth/control-plane/domain/nodes/placement';
import type { NodeRecord } from '@berth/control-plane/domain/platform/records';
import { summary } from './stats.ts';

const [NODES, DATASETS, CHOICES] = [10_000, 100, 40];
const GOAL_MS = 5;
const NOW = Date.parse('2026-11-21T12:00:00Z');
const BYTES = 1_000_000;

/** Random numbers that are the same in every run. */
function createChance(): () => number {
  let state = 42;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/**
 * Each node has its own probability to have a dataset: some have nearly all, some nearly none;
 * 500,000 copies in all.
 */
function cluster(chance: () => number): NodeRecord[] {
  return Array.from({ length: NODES }, (_, i) => ({
    ...PLAIN,
    id: `n${i}`,
    hostname: `node-${i}`,
    free_storage: chance() * 1e10,
    memory_bytes: 64e9,
    labels: { zone: i % 2 === 0 ? 'a' : 'b' },
    devices: i % 10 === 0 ? { 'v.example/gpu': ['0', '1'] } : {},
    cached: copies(chance, chance()),
  }));
}

const copies = (chance: () => number, share: number): NodeRecord['cached'] =>
  Array.from({ length: DATASETS }, (_, d) => d)
    .filter(() => chance() < share)
    .map((d) => ({
      dataset_id: `s${d}`,
      version: chance() < 0.8 ? 2 : 1,
      bytes: BYTES,
      last_used_at: '2026-11-21T00:00:00Z',
    }));

const PLAIN: NodeRecord = {
  id: '',
  hostname: '',
  role: 'deploy',
  host_ip: '10.0.0.1',
  max_storage: 1e10,
  free_storage: null,
  max_builds: 1,
  agent_version: '1',
  boot_id: null,
  arch: 'amd64',
  cpus: null,
  memory_bytes: null,
  labels: {},
  admin_labels: {},
  devices: {},
  engine: null,
  capabilities: null,
  disk: null,
  has_secret: false,
  doubled: null,
  schedulable: true,
  deleting_at: null,
  cached: [],
  copy_rate: 1e8,
  drain: null,
  containers: [],
  earlier_nodes: [],
  observed_at: NOW,
  observed_since: null,
  last_seen_at: NOW,
  last_polled_at: NOW,
  created_at: NOW,
};

/** Requires a label, memory and a device; every node has other containers. */
const REQUIRED: NonNullable<Question['machine']> = {
  requires: { labels: { zone: 'a' }, arch: 'amd64', devices: { 'v.example/gpu': 1 } },
  memory: 8e9,
  held: new Map(
    Array.from({ length: NODES }, (_, i) => [
      `n${i}`,
      { memory: (i % 8) * 8e9, devices: new Set(['v.example/gpu=0']) },
    ]),
  ),
};

/** Chooses the winner as the contract words it: looks up every dataset on every node. */
function naive({ wanted }: Question, nodes: readonly NodeRecord[]): string | null {
  let best: { score: number; node: NodeRecord } | null = null;
  for (const node of nodes) {
    let [count, missing] = [0, 0];
    for (const d of wanted)
      if (node.cached.some((c) => c.dataset_id === d.id && c.version === d.version)) count += 1;
      else missing += d.bytes;
    const free = node.free_storage ?? node.max_storage;
    const evictable = node.cached
      .filter((c) => !wanted.some((d) => d.id === c.dataset_id && d.version === c.version))
      .reduce((sum, c) => sum + c.bytes, 0);
    if (free + evictable < missing) continue;
    const score = count * 10 - missing * 0.000001 + free * 0.0000001;
    if (
      best === null ||
      score > best.score ||
      (score === best.score && node.hostname < best.node.hostname)
    )
      best = { score, node };
  }
  return best?.node.id ?? null;
}

const timed = <T>(what: () => T): { ms: number; result: T } => {
  const from = performance.now();
  const result = what();
  return { ms: performance.now() - from, result };
};

export async function benchPlacement(): Promise<string[]> {
  const chance = createChance();
  const nodes = cluster(chance);
  const wanted = Array.from({ length: DATASETS }, (_, d) => ({
    id: `s${d}`,
    name: `s${d}`,
    version: 2,
    bytes: BYTES,
    status: 'ok' as const,
  }));
  const question: Question = {
    wanted,
    losses: [],
    runsOn: null,
    stays: false,
    arch: null,
    needs: [],
  };
  const context = { now: NOW, limits: DEFAULT_LIMITS, cacheIndex: createCacheIndex() };
  const ask = () => timed(() => choose(question, nodes, context).placement);
  const first = ask();
  const plain = [0, 1, 2].map(() => timed(() => naive(question, nodes)));
  const same: number[] = [];
  const changed: number[] = [];
  let equal = plain.every((p) => p.result === first.result.winner);
  for (let i = 0; i < CHOICES; i++) {
    same.push(ask().ms);
    // One node reports a change in between; from time to time it is the best one.
    const at = Math.floor(chance() * NODES);
    nodes[at] = {
      ...(nodes[at] as NodeRecord),
      cached: copies(chance, i % 4 === 0 ? 1.1 : chance()),
    };
    const { ms, result } = ask();
    changed.push(ms);
    if (i % 8 === 0) equal &&= naive(question, nodes) === result.winner;
  }
  const required = { ...question, machine: REQUIRED };
  const needy = Array.from(
    { length: CHOICES },
    () => timed(() => choose(required, nodes, context)).ms,
  );
  if (!equal) throw new Error('placement: the choice differs from that of the naive loop');
  const [loop, quiet, news, machine] = [
    summary(plain.map((p) => p.ms)).p50,
    summary(same),
    summary(changed),
    summary(needy),
  ];
  const isMet = [quiet, news, machine].every(({ p50 }) => p50 <= GOAL_MS);
  const verdict = isMet ? 'ok' : 'MISSED';
  return [
    `data: placement, ${NODES} nodes x ${DATASETS} datasets: nothing changed ` +
      `${quiet.p50.toFixed(2)} ms (p99 ${quiet.p99.toFixed(2)}), one node changed ` +
      `${news.p50.toFixed(2)} ms ` +
      `(p99 ${news.p99.toFixed(2)}), with labels, memory and devices ` +
      `${machine.p50.toFixed(2)} ms (p99 ${machine.p99.toFixed(2)}), first choice ${first.ms.toFixed(0)} ms (goal <= ` +
      `${GOAL_MS} ms: ${verdict}); naive loop ${loop.toFixed(0)} ms, ` +
      `${(loop / quiet.p50).toFixed(0)} x; same winner each time`,
  ];
}
