/**
 * Routes of agents (docs/contract.md "Agent API", docs/interfaces.md
 * "Agent API beyond the contract"). They ignore unknown fields.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { derived } from '@berth/kit/live';
import type { NodeRegister } from '@berth/wire/node';
import { LOGS_WANTED_HEADER } from '@berth/wire/runtime';
import { isOpenTask } from '@berth/wire/vocabulary';
import type { FastifyRequest } from 'fastify';
import { canonicalAddress } from '../../domain/nodes/address.ts';
import type { NodeSecret } from '../../domain/nodes/agent-identity.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { hostProblem } from '../../domain/nodes/host.ts';
import { isOnline } from '../../domain/nodes/placement.ts';
import type { NodeRecord, TaskRecord } from '../../domain/platform/records.ts';
import type { Uptime } from '../../domain/platform/uptime.ts';
import type { Registered } from '../../domain/nodes/node-store.ts';
import { type Agents, proofOf } from '../agents.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { createDelivery } from '../delivery.ts';
import { createDeletedDatasets } from '../deleted-datasets.ts';
import { createGitAccess, createHostKeysSeen } from '../git-access.ts';
import { type Holds, readUntil } from '../long-poll.ts';
import { changesOf, type NodeChangeLog } from '../node-changes.ts';
import type { NodeNotes } from '../node-notes.ts';
import type { Quarantine } from '../node-quarantine.ts';
import { createVolumeReports } from '../volume-reports.ts';
import { leaseToken, requiredToken } from '../lease-token.ts';
import { sha256Of, newNodeSecret } from '../auth/secrets.ts';
import type { Readers } from '../log-readers.ts';
import { createNeighbours } from '../neighbours.ts';
import { nodeView, taskView, time } from '../views.ts';

/**
 * A registration lists all containers and cached datasets of a node. Log lines arrive in batches of
 * up to 1,000.
 */
const LARGE = { bodyLimit: 8 * 1_048_576 };

/** ETag of the empty list, computed once because it is by far the most common answer. */
const NO_TASKS = etagOf('[]');

type Deps = ApiDeps & {
  holds: Holds;
  agents: Agents;
  nodeChanges: NodeChangeLog;
  nodeNotes: readonly NodeNotes[];
  quarantine: Quarantine;
  readers: Pick<Readers, 'tagOf'>;
};

export function agentRoutes(route: Define, deps: Deps): void {
  const {
    stores,
    driver,
    changes,
    limits,
    settings,
    holds,
    now,
    uptime,
    agents,
    nodeChanges,
    nodeNotes,
    quarantine,
    readers,
  } = deps;
  const deletedDatasets = createDeletedDatasets(stores, changes);
  const volumeReports = createVolumeReports(stores, now);
  const neighboursFor = createNeighbours(stores.nodes);
  const gitAccess = createGitAccess(deps);
  const hostKeysSeen = createHostKeysSeen(deps);
  const delivery = createDelivery(deps);

  route(
    'agentRegister',
    async ({ body: given, request }) => {
      const problem = hostProblem(given.host_ip, 'host_ip');
      if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
      const body = { ...given, host_ip: canonicalAddress(given.host_ip) };
      if (/\p{Cc}/u.test(body.hostname))
        throw invalid('hostname', 'no_control', 'must not contain control characters');
      const at = uptime.estimate();
      const registered = await register(body, request, at);
      const { node, secret } = registered;
      await failPoint('register.after');
      for (const notes of nodeNotes) notes.registered(node, body);
      notify(registered);
      for (const change of changesOf(registered, body.hostname))
        nodeChanges.record(change, sourceOf(request));
      try {
        warnAboutUnknown(node, await driver.observed(node, at.at), request);
      } catch (error) {
        // The registration itself succeeded. The next one sends the observations again.
        request.log.error(
          { err: error, node: node.id },
          "could not apply the agent's observations",
        );
      }
      const open = stores.tasks.lastOpen(node.id);
      const forget = await deletedDatasets.among(body.cached ?? []);
      const { remove, setAside } = await volumeReports(node, body);
      const neighbours = await neighboursFor(body.neighbours_etag);
      return {
        ...nodeView(node, now(), limits),
        ...defined({
          node_secret: secret,
          open_tasks: open ?? undefined,
          forget: forget.length === 0 ? undefined : forget,
          remove_volumes: remove.length === 0 ? undefined : remove,
          set_aside_volumes: setAside.length === 0 ? undefined : setAside,
          neighbours,
        }),
        config_etag: configEtag(),
      };
    },
    LARGE,
  );

  async function register(
    body: NodeRegister,
    request: FastifyRequest,
    at: Uptime,
  ): Promise<Registered> {
    const proof = proofOf(request);
    const newSecret = proof.kind === 'open' ? null : secretFor;
    const { requireSecrets } = settings;
    try {
      const entry = {
        proof,
        requireSecrets,
        address: request.ip,
        offlineMs: limits.offlineMs,
        newSecret,
      };
      return await stores.nodes.register(body, now(), entry, at);
    } catch (error) {
      if (error instanceof DomainError && error.code === 'node_doubled') {
        const node = { id: '', hostname: body.hostname, role: body.role };
        const message =
          `refused a second machine, with the address ${body.host_ip}, that registers as ` +
          body.hostname;
        nodeChanges.record({ kind: 'doubled', node, message }, sourceOf(request));
      }
      throw error;
    }
  }
  const sourceOf = (request: FastifyRequest): { address: string; requestId: string } => ({
    address: request.ip,
    requestId: request.id,
  });

  function warnAboutUnknown(
    node: NodeRecord,
    containers: readonly string[],
    request: FastifyRequest,
  ): void {
    // A registration arrives every 30 s, so each set is logged only once.
    if (quarantine.seen(node, containers) && containers.length > 0)
      request.log.warn(
        { node: node.hostname, containers },
        'found containers of unknown deployments; they are quarantined: only people remove them',
      );
  }

  function notify({ node, before, routesMoved }: Registered): void {
    // Deployments may be waiting for this node.
    if (
      before === null ||
      !isOnline(before, now(), limits) ||
      before.agent_version !== node.agent_version
    )
      changes.notify('work');
    // The version of the agent determines which tasks it can get.
    if (before !== null && before.agent_version !== node.agent_version)
      changes.notify(`node:${node.id}`);
    if (routesMoved === true || (before !== null && before.host_ip !== node.host_ip))
      changes.notify('routes');
  }

  /** The same at every control plane. Whoever gets it may also request the password. */
  const configEtag = derived(settings.registry, ({ addr, user, password }) =>
    createHmac('sha256', password)
      .update(JSON.stringify(['berth registry', addr, user, settings.clean.keepReleases]))
      .digest('base64url')
      .slice(0, 16),
  );

  route('agentConfig', async ({ request }) => {
    await agents.checkRequest(request);
    const { addr, user, password } = settings.registry();
    return {
      registry_addr: addr,
      registry_user: user,
      registry_password: password,
      base_domain: settings.baseDomain,
      keep_releases: settings.clean.keepReleases,
    };
  });

  route('agentTasks', async ({ query, setEtag, request, reply }) => {
    const read = async () => {
      await agents.checkNode(request, query.node_id);
      const open = await stores.tasks.openFor(query.node_id, now());
      const tasks = (await delivery.forList(query.node_id, open)).map(taskView);
      const listed = tasks.length === 0 ? NO_TASKS : etagOf(JSON.stringify(tasks));
      const logs = readers.tagOf(query.node_id);
      return { tasks, logs, etag: logs === null ? listed : etagOf(`${listed} ${logs}`) };
    };
    const knownEtag = request.headers['if-none-match'];
    const isNew = (result: Awaited<ReturnType<typeof read>>): boolean =>
      knownEtag === undefined
        ? result.tasks.length > 0 || result.logs !== null
        : !matchesEtag(knownEtag, result.etag);
    const hold =
      query.wait === undefined || query.wait === 0 ? null : holds.begin('tasks', reply.raw);
    try {
      const { tasks, logs, etag } =
        hold === null
          ? await read()
          : await readUntil(read, isNew, {
              changes,
              topic: `node:${query.node_id}`,
              waitMs: (query.wait ?? 0) * 1000,
              hold,
            });
      setEtag(etag);
      if (logs !== null) void reply.header(LOGS_WANTED_HEADER, logs);
      if (!matchesEtag(knownEtag, etag)) return tasks;
      void reply.code(304).send();
      return SENT;
    } finally {
      hold?.release();
    }
  });

  /**
   * Lease expiry for agents, by the clock of the machine. The lease itself expires by the uptime
   * clock.
   */
  const leaseEnd = (): string => time(now() + limits.leaseMs);

  route('agentStart', async ({ params, request }) => {
    await agents.checkTask(request, params.id);
    const task = await stores.tasks.get(params.id);
    // First: a claim whose answer cannot be made would count as an attempt.
    const [git, delivered] = await Promise.all([gitAccess(task), delivery.forClaim(task)]);
    const lease = {
      token: randomBytes(32).toString('base64url'),
      expires_at: (await uptime.now()).at + limits.leaseMs,
    };
    const claim = await stores.tasks.claim(params.id, lease, now(), limits.maxAttempts);
    await failPoint('claim.after');
    await delivered?.record();
    // The claim adds a line to the story of the deployment and changes the task list of the node.
    // Notify the readers of both.
    notifyLogs(task);
    changes.notify(`node:${task.node_id}`);
    const lease_expires_at = leaseEnd();
    return {
      attempt: claim.attempt,
      lease_token: claim.lease_token,
      lease_expires_at,
      lease_seconds: limits.leaseMs / 1000,
      ...defined({ git: git ?? undefined }),
      ...delivered?.claim,
    };
  });

  route('agentRenew', async ({ params, request }) => {
    await agents.checkTask(request, params.id);
    const expiresAt = (await uptime.now()).at + limits.leaseMs;
    const { cancel_requested } = await stores.tasks.renew(
      params.id,
      requiredToken(request),
      expiresAt,
      now(),
    );
    await failPoint('renew.after');
    return { lease_expires_at: leaseEnd(), lease_seconds: limits.leaseMs / 1000, cancel_requested };
  });

  route(
    'agentLogs',
    async ({ params, body, request }) => {
      await agents.checkTask(request, params.id);
      const task = await stores.tasks.get(params.id);
      checkMayLog(task, requiredToken(request));
      if (task.deployment_id === null) return { stored: 0 };
      const source = { task_id: task.id, attempt: task.attempt, first: body.first ?? null };
      const stored = await stores.logs.append(task.deployment_id, source, body.lines, now());
      await failPoint('logs.after');
      notifyLogs(task);
      return { stored };
    },
    LARGE,
  );

  route('agentComplete', async ({ params, body, request }) => {
    await agents.checkTask(request, params.id);
    const answer = await driver.report(params.id, leaseToken(request), body);
    await hostKeysSeen(params.id, body.host_keys ?? []).catch((err: unknown) =>
      request.log.error({ err }, 'could not record the host keys of git servers'),
    );
    return answer;
  });

  const notifyLogs = (task: TaskRecord): void => {
    if (task.deployment_id !== null) changes.notify(`logs:${task.deployment_id}`);
  };
}

const secretFor = (nodeId: string): NodeSecret => {
  const text = newNodeSecret(nodeId);
  return { text, hash: sha256Of(text) };
};

/**
 * Accepts the last lines of a task even after its end. Refuses lines for a task that was lost or
 * cancelled.
 */
function checkMayLog(task: TaskRecord, token: string): void {
  if (task.lease_token !== token) throw new DomainError('stale_lease');
  if (!isOpenTask(task.status) && task.status !== 'completed' && task.status !== 'failed')
    throw new DomainError('stale_lease', `the task is ${task.status}`);
}
