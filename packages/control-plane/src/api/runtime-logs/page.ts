/** Runtime logs as JSON: the newest lines of a range, merged by time. */
import { defined } from '@berth/kit/defined';
import { createLimit } from '@berth/kit/limit';
import { DEFAULT_TAIL, type RuntimeLine, type RuntimeLogs } from '@berth/wire/runtime';
import type { RuntimeLogDeps } from './deps.ts';
import {
  endOf,
  lineView,
  type LogQuery,
  mergedByTime,
  newestEnds,
  newestLines,
  nothingRuns,
  rangeOf,
  storedLines,
} from './lines.ts';
import { nameBefore, readableNode, type Target, targetsOf } from './targets.ts';

/** Number of logs that are read at the same time for one answer. */
const READS_AT_ONCE = 4;
/** Limit in bytes of the memory for the lines of one answer, shared by several logs. */
const SHARED_BYTES = 16 * 1_048_576;

export async function readPage(
  deps: RuntimeLogDeps,
  projectId: string,
  query: LogQuery,
  signal: AbortSignal,
): Promise<RuntimeLogs> {
  const targets = await targetsOf(deps, projectId, query);
  const tail = query.tail ?? DEFAULT_TAIL;
  const parts = await readTargets(deps, targets, query, tail, signal);
  if (targets.length === 0) parts.push(await lastEnd(deps, projectId, query, tail));
  const lines = withoutGap(parts);
  const problems = parts.flatMap((part) => part.unavailable ?? []);
  return {
    lines: newestLines(lines, tail),
    truncated: lines.length > tail || parts.some((part) => part.truncated),
    ...defined({ unavailable: problems.length === 0 ? undefined : problems.join('; ') }),
  };
}

/** `isOverBytes`: lines of the range did not fit into the memory. */
type Part = RuntimeLogs & { isOverBytes?: boolean };

async function readTargets(
  deps: RuntimeLogDeps,
  targets: readonly Target[],
  query: LogQuery,
  tail: number,
  signal: AbortSignal,
): Promise<Part[]> {
  const ended = targets.find((target) => target.ended);
  if (ended !== undefined)
    return [storedLines(await deps.stores.exits.list(ended.deployment_id), query, tail)];
  const inTurn = createLimit(READS_AT_ONCE);
  const shared = Math.floor(SHARED_BYTES / targets.length);
  const bytes = Math.min(deps.readers.limits.read.bytes, shared);
  return Promise.all(
    targets.map(async (target) => {
      const part = await inTurn(
        () => readTarget(deps, target, { query, tail, bytes }, signal),
        signal,
      );
      const problem = part.unavailable;
      if (problem === undefined) return part;
      return { ...part, unavailable: `${nameBefore(target, targets.length)}${problem}` };
    }),
  );
}

/**
 * Merges the lines. Leaves out the lines before the first line of a part that did not fit into the
 * memory, so that no lines are missing between two others.
 */
function withoutGap(parts: readonly Part[]): RuntimeLine[] {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return only.lines;
  const begin = Math.max(
    ...parts.map(({ isOverBytes, lines: [first] }) =>
      isOverBytes === true && first !== undefined ? Date.parse(first.at) : -Infinity,
    ),
  );
  return mergedByTime(parts.map(({ lines }) => lines.filter(({ at }) => Date.parse(at) >= begin)));
}

async function readTarget(
  deps: RuntimeLogDeps,
  target: Target,
  { query, tail, bytes }: { query: LogQuery; tail: number; bytes: number },
  signal: AbortSignal,
): Promise<Part> {
  const { node, problem } = await readableNode(deps, target.node_id);
  if (problem !== null) return { lines: [], truncated: false, unavailable: problem };
  const request = {
    deployment_id: target.deployment_id,
    instance: target.instance,
    node_id: node.id,
    tail,
    ...rangeOf(query),
    stream: query.stream ?? null,
    after: null,
    bytes,
  };
  const read = await deps.readers.read(request, signal);
  return {
    lines: read.lines.map((line) => lineView(target, line, read.offset)),
    truncated: read.isCut,
    isOverBytes: read.isOverBytes,
    ...defined({ unavailable: read.problem ?? undefined }),
  };
}

/** Returns the stored ends of the newest containers, for a project without a running one. */
export async function lastEnd(
  { stores }: RuntimeLogDeps,
  projectId: string,
  query: LogQuery,
  tail: number,
): Promise<RuntimeLogs> {
  const { items } = await stores.deployments.list(
    { project_id: projectId },
    { limit: 20, cursor: null },
  );
  for (const { id } of items) {
    const ends = newestEnds(await stores.exits.list(id), query);
    const [newest] = ends;
    if (newest === undefined) continue;
    const others = ends.length === 1 ? '' : ', and of its other instances';
    const unavailable =
      `${nothingRuns(query)}; these are the last lines of ${endOf(newest)}` + others;
    return { ...storedLines(ends, query, tail), unavailable };
  }
  const unavailable = `${nothingRuns(query)}, and no end of a container is stored`;
  return { lines: [], truncated: false, unavailable };
}
