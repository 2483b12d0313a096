/**
 * Runtime logs: the output of a project's containers, as JSON or as a live stream, and how
 * containers ended. The lines come from the agents (api/runtime-logs); only ends of containers are
 * stored.
 */
import { createHash } from 'node:crypto';
import { createRefCounts } from '@berth/kit/ref-count';
import type { ExitReport } from '@berth/wire/runtime';
import {
  checkProcess,
  isAskedFor,
  unlabelledNumber,
  WEB,
} from '../../domain/deployments/instance.ts';
import { presentProject } from '../../domain/projects/present-project.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import type { Agents } from '../agents.ts';
import type { Define } from '../define.ts';
import type { RuntimeLogDeps } from '../runtime-logs/deps.ts';
import { exitView } from '../runtime-logs/lines.ts';
import { readPage } from '../runtime-logs/page.ts';
import { streamLogs } from '../runtime-logs/stream.ts';
import { deploymentOf } from '../runtime-logs/targets.ts';

type Deps = RuntimeLogDeps & { agents: Agents };

/** Body limit in bytes for a batch of lines or reports of ended containers. */
const BODY_LIMIT = 8 * 1_048_576;

export function runtimeLogRoutes(route: Define, deps: Deps): void {
  const { stores, agents, readers } = deps;
  /** Number of open streams of each person. */
  const openStreams = createRefCounts();

  route('projectLogs', async ({ params, query, user, recheck, stream, request, reply }) => {
    const project = await presentProject(stores.projects, params.id);
    checkProcess(project, query);
    const { id: projectId } = project;
    if (query.deployment_id !== undefined) await deploymentOf(deps, projectId, query.deployment_id);
    if (!stream) {
      const gone = new AbortController();
      reply.raw.on('close', () => gone.abort());
      return readPage(deps, projectId, query, gone.signal);
    }
    if (query.until !== undefined)
      throw invalid('until', 'stream', 'a stream has no end; leave it out, or request JSON');
    const call = { projectId, userId: user.id, query, recheck, request, reply };
    return streamLogs(deps, openStreams, call);
  });

  route('deploymentExits', async ({ params, query }) => {
    const deployment = await stores.deployments.get(params.id);
    checkProcess(deployment.settings, query);
    const exits = await stores.exits.list(deployment.id);
    const askedFor = exits.filter((exit) =>
      isAskedFor(query, { process: exit.process, number: exit.instance }),
    );
    return { items: askedFor.map(exitView) };
  });

  route('agentLogWants', async ({ query, request }) => {
    await agents.checkNode(request, query.node_id);
    return { items: await readers.wantsOf(query.node_id) };
  });

  route(
    'agentLogBatch',
    async ({ params, body, request }) => {
      await agents.checkNode(request, body.node_id);
      return readers.accept(params.key, body);
    },
    { bodyLimit: BODY_LIMIT },
  );

  route(
    'agentExits',
    async ({ body, request }) => {
      await agents.checkNode(request, body.node_id);
      return { stored: await storeExits(deps, body.node_id, body.exits) };
    },
    { bodyLimit: BODY_LIMIT },
  );
}

/** Stores how containers of existing deployments ended. Returns how many reports are new. */
async function storeExits(
  { stores, now }: Pick<Deps, 'stores' | 'now'>,
  node_id: string,
  exits: readonly ExitReport[],
): Promise<number> {
  const ids = [...new Set(exits.map((exit) => exit.deployment_id))];
  const existing = new Map((await stores.deployments.getMany(ids)).map((d) => [d.id, d]));
  const own = await stores.exits.ranOn(node_id, ids);
  // Check whether the deployment ever ran on this node: it might have moved to a different node
  // since.
  const foreign = [...existing.keys()].find((id) => !own.has(id));
  if (foreign !== undefined)
    throw new DomainError('forbidden', `deployment ${foreign} never ran on this node`);
  let stored = 0;
  for (const { container_id, started_at, finished_at, instance, ...exit } of exits) {
    const deployment = existing.get(exit.deployment_id);
    if (deployment === undefined) continue;
    const record = {
      ...exit,
      process: instance?.process ?? WEB,
      instance: instance?.number ?? unlabelledNumber(deployment),
      run: runKey(container_id, started_at),
      node_id,
      started_at: timeOf(started_at),
      finished_at: timeOf(finished_at),
    };
    if (await stores.exits.add(record, now())) stored += 1;
  }
  return stored;
}

/** Returns an id of one run of one container. */
const runKey = (container_id: string, started_at: string | null): string =>
  createHash('sha256').update(`${container_id} ${started_at}`).digest('base64url').slice(0, 22);

const timeOf = (text: string | null): number | null => (text === null ? null : Date.parse(text));
