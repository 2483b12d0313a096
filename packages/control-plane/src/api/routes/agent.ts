/**
 * Routes of agents (docs/contract.md "Agent API", docs/interfaces.md "Agent API beyond the contract"). They ignore unknown fields.
 */
import { randomBytes } from 'node:crypto';
import { failPoint } from '@berth/kit/fail-point';
import type { NodeRegister } from '@berth/wire/node';
import { isOpenTask } from '@berth/wire/vocabulary';
import type { FastifyRequest } from 'fastify';
import type { NodeSecret } from '../../domain/agent-identity.ts';
import { DomainError, invalid } from '../../domain/errors.ts';
import { hostProblem } from '../../domain/host.ts';
import { isOnline } from '../../domain/placement.ts';
import type { NodeRecord, TaskRecord } from '../../domain/records.ts';
import type { Uptime } from '../../domain/uptime.ts';
import type { Registered } from '../../domain/stores.ts';
import { type Agents, proofOf } from '../agents.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { type Holds, lookUntil } from '../holds.ts';
import { type NodeNewsDesk, newsOf } from '../node-news.ts';
import type { NodeNotes } from '../node-notes.ts';
import { createKnownDatasets } from '../known-datasets.ts';
import { leaseToken, requiredToken } from '../lease-token.ts';
import { hashOf, newNodeSecret } from '../auth/secrets.ts';
import { nodeView, taskView, time } from '../views.ts';

/** A register names every container and cached dataset of a node; logs come in batches of up to a thousand lines. */
const LARGE = { bodyLimit: 8 * 1_048_576 };

/** Of the list that nearly all agents have nearly all the time. */
const NO_TASKS = etagOf('[]');

type Deps = ApiDeps & { holds: Holds; agents: Agents; news: NodeNewsDesk; nodeNotes: readonly NodeNotes[] };

export function agentRoutes(route: Define, deps: Deps): void {
  const { stores, driver, changes, limits, settings, holds, now, uptime, agents, news, nodeNotes } = deps;
  const datasets = createKnownDatasets(stores, changes);

  route(
    'agentRegister',
    async ({ body, request }) => {
      const problem = hostProblem(body.host_ip, 'host_ip');
      if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
      if (/\p{Cc}/u.test(body.hostname)) throw invalid('hostname', 'no_control', 'must not contain control characters');
      const at = uptime.known();
      const registered = await entered(body, request, at);
      const { node, secret } = registered;
      await failPoint('register.after');
      for (const notes of nodeNotes) notes.registered(node, body);
      tellNews(registered);
      for (const one of newsOf(registered, body.hostname)) news.tell(one, from(request));
      try {
        tellUnknown(node, await driver.observed(node, at.at), request);
      } catch (error) {
        // The node is registered, which is what it asked for; what it saw is told again with its next register.
        request.log.error({ err: error, node: node.id }, 'what the agent observed could not be worked in');
      }
      const open = stores.tasks.lastOpen(node.id);
      const forget = await datasets.gone(body.cached ?? []);
      return {
        ...nodeView(node, now(), limits),
        ...(secret === undefined ? {} : { node_secret: secret }),
        ...(open === null ? {} : { open_tasks: open }),
        ...(forget.length === 0 ? {} : { forget }),
      };
    },
    LARGE,
  );

  async function entered(body: NodeRegister, request: FastifyRequest, at: Uptime): Promise<Registered> {
    const proof = proofOf(request);
    const newSecret = proof.kind === 'open' ? null : secretFor;
    const { requireSecrets } = settings;
    try {
      const entry = { proof, requireSecrets, address: request.ip, offlineMs: limits.offlineMs, newSecret };
      return await stores.nodes.register(body, now(), entry, at);
    } catch (error) {
      if (error instanceof DomainError && error.code === 'node_doubled') {
        const node = { id: '', hostname: body.hostname, role: body.role };
        news.tell({ kind: 'doubled', node, message: `a second machine, at ${body.host_ip}, registers as ${body.hostname}` }, from(request));
      }
      throw error;
    }
  }
  const from = (request: FastifyRequest): { address: string; requestId: string } => ({ address: request.ip, requestId: request.id });

  /** Once for each set of them: a register comes every 30 s. */
  const unknownOn = new Map<string, string>();
  function tellUnknown(node: NodeRecord, containers: readonly string[], request: FastifyRequest): void {
    const text = [...containers].sort().join(', ');
    if (text !== '' && text !== unknownOn.get(node.id))
      request.log.warn({ node: node.hostname, containers }, 'containers of deployments that are not known here: they are left alone');
    if (text === '') unknownOn.delete(node.id);
    else unknownOn.set(node.id, text);
  }

  function tellNews({ node, before, routesMoved }: Registered): void {
    // Work may be waiting for it; and a changed address moves its routes.
    if (before === null || !isOnline(before, now(), limits) || before.agent_version !== node.agent_version) changes.notify('work');
    // Which tasks it may be given depends on it.
    if (before !== null && before.agent_version !== node.agent_version) changes.notify(`node:${node.id}`);
    if (routesMoved === true || (before !== null && before.host_ip !== node.host_ip)) changes.notify('routes');
  }

  route('agentConfig', async ({ request }) => {
    await agents.mayAsk(request);
    return {
      registry_addr: settings.registry.addr,
      registry_user: settings.registry.user,
      registry_password: settings.registry.password,
      base_domain: settings.baseDomain,
    };
  });

  route('agentTasks', async ({ query, tag, request, reply }) => {
    const look = async () => {
      await agents.mayActFor(request, query.node_id);
      const tasks = (await stores.tasks.openFor(query.node_id, now())).map(taskView);
      return { tasks, etag: tasks.length === 0 ? NO_TASKS : etagOf(JSON.stringify(tasks)) };
    };
    const known = request.headers['if-none-match'];
    const isNews = (seen: Awaited<ReturnType<typeof look>>): boolean =>
      known === undefined ? seen.tasks.length > 0 : !matchesEtag(known, seen.etag);
    const hold = query.wait === undefined || query.wait === 0 ? null : holds.begin('tasks', reply.raw);
    try {
      const { tasks, etag } =
        hold === null
          ? await look()
          : await lookUntil(look, isNews, {
              changes,
              topic: `node:${query.node_id}`,
              waitMs: (query.wait ?? 0) * 1000,
              hold,
            });
      tag(etag);
      if (!matchesEtag(known, etag)) return tasks;
      void reply.code(304).send();
      return SENT;
    } finally {
      hold?.release();
    }
  });

  /** As the machine's clock has it, for agents; the lease itself ends by the uptime clock. */
  const leaseEnd = (): string => time(now() + limits.leaseMs);

  route('agentStart', async ({ params, request }) => {
    await agents.mayWorkOn(request, params.id);
    const lease = { token: randomBytes(32).toString('base64url'), expires_at: (await uptime.now()).at + limits.leaseMs };
    const claim = await stores.tasks.claim(params.id, lease, now(), limits.maxAttempts);
    await failPoint('claim.after');
    const task = await stores.tasks.get(params.id);
    // The claim is a line of the deployment's story, and changes the node's list; who follows either sees it now.
    tellStory(task);
    changes.notify(`node:${task.node_id}`);
    const lease_expires_at = leaseEnd();
    return { attempt: claim.attempt, lease_token: claim.lease_token, lease_expires_at, lease_seconds: limits.leaseMs / 1000 };
  });

  route('agentRenew', async ({ params, request }) => {
    await agents.mayWorkOn(request, params.id);
    const expiresAt = (await uptime.now()).at + limits.leaseMs;
    const { cancel_requested } = await stores.tasks.renew(params.id, requiredToken(request), expiresAt, now());
    await failPoint('renew.after');
    return { lease_expires_at: leaseEnd(), lease_seconds: limits.leaseMs / 1000, cancel_requested };
  });

  route(
    'agentLogs',
    async ({ params, body, request }) => {
      await agents.mayWorkOn(request, params.id);
      const task = await stores.tasks.get(params.id);
      checkMayLog(task, requiredToken(request));
      if (task.deployment_id === null) return { stored: 0 };
      const source = { task_id: task.id, attempt: task.attempt, first: body.first ?? null };
      const stored = await stores.logs.append(task.deployment_id, source, body.lines, now());
      await failPoint('logs.after');
      tellStory(task);
      return { stored };
    },
    LARGE,
  );

  route('agentComplete', async ({ params, body, request }) => {
    await agents.mayWorkOn(request, params.id);
    return driver.report(params.id, leaseToken(request), body);
  });

  const tellStory = (task: TaskRecord): void => {
    if (task.deployment_id !== null) changes.notify(`logs:${task.deployment_id}`);
  };
}

const secretFor = (nodeId: string): NodeSecret => {
  const text = newNodeSecret(nodeId);
  return { text, hash: hashOf(text) };
};

/** The last lines of a task may come after its end; those of one that was taken away never count. */
function checkMayLog(task: TaskRecord, token: string): void {
  if (task.lease_token !== token) throw new DomainError('stale_lease');
  if (!isOpenTask(task.status) && task.status !== 'completed' && task.status !== 'failed')
    throw new DomainError('stale_lease', `the task is ${task.status}`);
}
