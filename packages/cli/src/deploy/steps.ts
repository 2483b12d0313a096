/**
 * The steps of a deployment for people: build, place, copy, start, route, drain. Pure: computed
 * from the API's answers, so that a reconnected client shows the same steps.
 */
import type { Deployment, DeploymentEvent, PhaseName } from '@berth/wire/deployment';
import type { PlacementRow } from '@berth/wire/node';
import { isSettled } from '@berth/wire/vocabulary';
import { sizeText } from '@berth/wire/size-text';
import { seconds } from '../output/units.ts';

export const STEP_NAMES = ['build', 'place', 'copy', 'start', 'route', 'drain'] as const;
export type StepName = (typeof STEP_NAMES)[number];
export type StepState = 'running' | 'done' | 'failed' | 'stopped';
/** `detail` changes only with new facts; `live` changes all the time (bytes, time left). */
export type Step = {
  name: StepName;
  state: StepState;
  detail: string;
  live: string;
  startedAt: number;
  endedAt: number | null;
};

const STEP_OF: Record<PhaseName, StepName> = {
  queue: 'build',
  build: 'build',
  place: 'place',
  release: 'place',
  copy: 'copy',
  start: 'start',
  route: 'route',
};

/**
 * `old`: the previous deployment, if it runs on another node. `drains`: this deployment replaced a
 * version, which drains.
 */
export type Seen = { deployment: Deployment; old: Deployment | null; drains: boolean };

export function stepsOf({ deployment: d, old, drains }: Seen): Step[] {
  const steps = new Map<StepName, Step>();
  const settled = isSettled(d.status);
  const cut: StepState = d.status === 'failed' ? 'failed' : 'stopped';
  for (const phase of withCopy(d)) {
    const name = STEP_OF[phase.name];
    const before = steps.get(name);
    steps.set(name, {
      name,
      state: phase.ended_at === null ? 'running' : 'done',
      detail: '',
      live: '',
      startedAt: before?.startedAt ?? Date.parse(phase.started_at),
      endedAt: phase.ended_at === null ? null : Date.parse(phase.ended_at),
    });
  }
  // A rollback to a release needs no build, so its build step ends at once.
  if (d.rollback_of !== null && steps.get('build')?.state === 'done') steps.delete('build');
  const last = [...steps.values()].at(-1);
  if (last !== undefined && settled && d.status !== 'running' && d.status !== 'retired')
    last.state = cut;
  for (const step of steps.values()) Object.assign(step, textOf(step, d));
  if (drains && (d.status === 'running' || d.status === 'retired'))
    steps.set('drain', drainStep(d, old));
  return [...steps.values()];
}

/**
 * Adds the steps that are not reported yet: a deploy task reports its phases only when it ends.
 * Until then, the copy comes from the progress and the start from the events.
 */
function withCopy(d: Deployment): Deployment['phases'] {
  const open = d.phases.at(-1);
  if (d.status !== 'deploying' || open === undefined || open.name !== 'place' || d.node_id === null)
    return d.phases;
  const assigned = open.ended_at ?? lastEvent(d, 'deploying')?.at ?? open.started_at;
  const placed = { ...open, ended_at: assigned };
  const copying = d.progress?.datasets.some((one) => one.step !== 'done') === true;
  return [
    ...d.phases.slice(0, -1),
    placed,
    { name: copying ? 'copy' : 'start', started_at: assigned, ended_at: null },
  ];
}

const lastEvent = (d: Deployment, ...kinds: string[]): DeploymentEvent | undefined =>
  d.events.findLast((event) => kinds.includes(event.kind));

function textOf(step: Step, d: Deployment): Pick<Step, 'detail' | 'live'> {
  if (step.state === 'failed') return { detail: d.error?.code ?? 'failed', live: '' };
  if (step.state === 'stopped') return { detail: d.status, live: '' };
  const waiting = step.state === 'running' ? d.waiting : null;
  if (waiting !== null) return { detail: `waiting: ${waiting}`, live: '' };
  switch (step.name) {
    case 'build':
      return {
        detail: step.state === 'done' ? builtText(d) : (lastEvent(d, 'building')?.message ?? ''),
        live: '',
      };
    case 'place':
      return { detail: step.state === 'done' ? placeText(d) : '', live: '' };
    case 'copy':
      return copyText(step, d);
    case 'start':
      if (step.state === 'running')
        return { detail: lastEvent(d, 'deploying', 'task_claimed')?.message ?? '', live: '' };
      return {
        detail: d.host_ip === null ? '' : `the container answers at ${d.host_ip}:${d.host_port}`,
        live: '',
      };
    case 'route':
      return {
        detail:
          step.state === 'done'
            ? (lastEvent(d, 'running')?.message ?? '')
            : 'the proxy has not applied the route at all entry points yet',
        live: '',
      };
    default:
      return { detail: '', live: '' };
  }
}

function builtText(d: Deployment): string {
  const commit = d.commit?.slice(0, 8) ?? '';
  const message = d.commit_message?.split('\n')[0] ?? '';
  return [commit, message].filter((part) => part !== '').join(' ');
}

/** Describes the chosen node, and why it won against the second-best node. */
export function placeText(d: Deployment): string {
  const { placement } = d;
  const rows = placement?.items ?? [];
  const winner = rows.find((row) => row.node_id === placement?.winner);
  if (winner === undefined) return lastEvent(d, 'deploying')?.message ?? '';
  const others = rows.filter((row) => row.eligible && row.node_id !== winner.node_id);
  return (
    `${winner.hostname}: ` +
    reasonFor(winner, others, d, rows.length + (placement?.left_out?.eligible ?? 0))
  );
}

function reasonFor(
  winner: PlacementRow,
  others: readonly PlacementRow[],
  d: Deployment,
  nodes: number,
): string {
  const wanted = d.datasets.filter((dataset) => dataset.mode === 'dependency').length;
  if (others.length === 0) return nodes > 1 ? 'the only node that can take it' : 'the only node';
  const figures =
    wanted === 0
      ? ''
      : `it has ${winner.cached_dataset_count} of ${wanted} ` +
        `${wanted === 1 ? 'dataset' : 'datasets'}, ${sizeText(winner.missing_bytes)} to copy`;
  const best = Math.min(...others.map((row) => row.missing_bytes));
  if (winner.missing_bytes < best) return `${figures}; the next node would copy ${sizeText(best)}`;
  if (figures !== '') return figures;
  const next = Math.max(...others.map((row) => row.score));
  const isRoomiest = others.every((row) => row.free_storage_bytes <= winner.free_storage_bytes);
  return isRoomiest
    ? `most free storage of ${others.length + 1} nodes (${sizeText(winner.free_storage_bytes)})`
    : `score ${winner.score.toFixed(1)}, the next node ${next.toFixed(1)}`;
}

function copyText(step: Step, d: Deployment): Pick<Step, 'detail' | 'live'> {
  const rows = d.progress?.datasets ?? [];
  const names = (
    rows.length > 0
      ? rows.map((row) => `${row.name} v${row.version}`)
      : d.datasets.map((one) => `${one.name} v${one.version ?? '?'}`)
  ).join(', ');
  if (step.state === 'done') return { detail: names, live: '' };
  const done = rows.reduce((sum, row) => sum + row.bytes_done, 0);
  const total = rows.reduce((sum, row) => sum + row.bytes_total, 0);
  const rate = rows.reduce((sum, row) => sum + (row.bytes_per_second ?? 0), 0);
  const remainingSeconds = rows.reduce((sum, row) => sum + (row.remaining_seconds ?? 0), 0);
  const working =
    rows.find((row) => row.step !== 'done' && row.step !== 'waiting')?.step ?? 'waiting';
  const live = [
    `${sizeText(done)} of ${sizeText(total)}`,
    ...(working === 'copying' ? [] : [working]),
    ...(rate > 0 ? [`${sizeText(rate)}/s`] : []),
    ...(remainingSeconds > 0 ? [`${seconds(remainingSeconds * 1000)} left`] : []),
  ];
  return { detail: names, live: live.join(', ') };
}

const DRAINED = ['retire_done', 'retire_failed', 'retire_lost'];

/**
 * Returns the drain step. The old version's node reports the end of the drain: in the events of `d`
 * if both versions run on the same node, otherwise in those of `old`.
 */
function drainStep(d: Deployment, old: Deployment | null): Step {
  const startedAt = Date.parse(d.finished_at ?? d.created_at);
  const end = (old ?? d).events.findLast(
    (event) => DRAINED.includes(event.kind) && Date.parse(event.at) >= startedAt,
  );
  if (end === undefined)
    return {
      name: 'drain',
      state: 'running',
      detail: 'the old version finishes its requests',
      live: '',
      startedAt,
      endedAt: null,
    };
  const isGone = end.kind === 'retire_done';
  return {
    name: 'drain',
    state: isGone ? 'done' : 'failed',
    detail: isGone ? 'the old version is gone' : end.message,
    live: '',
    startedAt,
    endedAt: Date.parse(end.at),
  };
}
