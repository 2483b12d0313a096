/**
 * Authenticates agents by X-Agent-Secret and authorizes them. The header contains AGENT_SECRET, the
 * secret of one node, or a join token. A node's secret authorizes only requests for that node. Once
 * a node uses its own secret, AGENT_SECRET no longer works for the node.
 */
import { timingSafeEqual } from 'node:crypto';
import { fingerprintOf } from '@berth/kit/fingerprint';
import { derived, type Live } from '@berth/kit/live';
import { JOIN_TOKEN_PREFIX, NODE_SECRET_PREFIX } from '@berth/wire/node';
import type { FastifyRequest } from 'fastify';
import { LRUCache } from 'lru-cache';
import { AgentRefused, type AgentProof, NODE_SECRET } from '../domain/nodes/agent-identity.ts';
import { DomainError } from '../domain/platform/errors.ts';
import { type Attempts, networkOf } from './auth/attempts.ts';
import { sha256Of } from './auth/secrets.ts';
import { matcher } from './auth/shared-secrets.ts';
import { growingTo } from './lru.ts';
import type { AdmissionStore, JoinTokenStore } from '../domain/nodes/join-stores.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';

/** A beat changes nothing, and 10,000 agents send them, so it needs no query. */
export type Purpose = 'register' | 'beat' | 'other';

export type Agents = {
  /**
   * Sets `request.agent`. Throws agent_secret, and too_many_attempts for wrong secrets only.
   */
  identify(request: FastifyRequest, purpose: Purpose): void | Promise<void>;
  /** Throws agent_secret unless the secret is valid for this node. */
  checkNode(request: FastifyRequest, nodeId: string): Promise<void>;
  /** The same for a beat, without a query if the secret of the node is in memory. */
  checkBeat(request: FastifyRequest, nodeId: string): void | Promise<void>;
  /** Calls checkNode for the node of a task, which was heard now. Also throws not_found. */
  checkTask(request: FastifyRequest, taskId: string): Promise<void>;
  /** Checks a request that names no node. Throws agent_secret. */
  checkRequest(request: FastifyRequest): Promise<void>;
};
export type Deps = {
  nodes: Pick<NodeStore, 'heard' | 'secretUsed' | 'shownSecret' | 'standing'>;
  joinTokens: Pick<JoinTokenStore, 'storedHashOf'>;
  admissions: Pick<AdmissionStore, 'has' | 'hasAddress'>;
  tasks: Pick<TaskStore, 'get'>;
  agentSecrets: Live<readonly string[]>;
  requireSecrets: boolean;
  uptime: Pick<UptimeClock, 'estimate'>;
  /** Counts wrong secrets by network. */
  guesses: Attempts;
};

const OPEN: AgentProof = { kind: 'open' };
const sharedBy = (value: string): AgentProof => ({
  kind: 'shared',
  fingerprint: fingerprintOf('AGENT_SECRET', value),
});
/** Maximum number of tasks whose node is cached. A task never changes its node. */
const MAX_CACHED_TASKS = 20_000;

export function createAgents({
  nodes,
  tasks,
  joinTokens,
  admissions,
  agentSecrets,
  requireSecrets,
  uptime,
  guesses,
}: Deps): Agents {
  const sharedSecret = matcher(agentSecrets);
  /** Create one object for each secret, not one for each request: 10,000 agents poll. */
  const proofs = derived(
    agentSecrets,
    (values) => new Map(values.map((value) => [value, sharedBy(value)])),
  );
  const nodeOfTask = new LRUCache<string, string>(growingTo(MAX_CACHED_TASKS));

  function identify(request: FastifyRequest, purpose: Purpose): void | Promise<void> {
    const joining = purpose === 'register';
    const header = request.headers['x-agent-secret'];
    const secret = typeof header === 'string' ? header : '';
    // Without AGENT_SECRET every agent is accepted (development only).
    if (agentSecrets().length === 0) return void (request.agent = OPEN);
    if (secret === '') throw new DomainError('agent_secret');
    const shared = sharedSecret(secret);
    if (shared !== null) return void (request.agent = proofs().get(shared) ?? sharedBy(shared));
    const nodeId = idIn(NODE_SECRET_PREFIX, secret);
    if (nodeId !== null) {
      const proof = { kind: 'node', node_id: nodeId, hash: sha256Of(secret) } as const;
      request.agent = proof;
      // No query here: the store checks the secret of a registration, and a beat changes nothing.
      if (purpose !== 'other' && nodes.shownSecret(nodeId, proof.hash)) return;
      return nodeSecret(request, proof, joining);
    }
    const tokenId = idIn(JOIN_TOKEN_PREFIX, secret);
    if (tokenId === null) refuse(request, 'the secret is wrong');
    if (!joining) refuse(request, 'a join token is valid only for the first registration');
    return joinToken(request, tokenId, sha256Of(secret));
  }

  async function nodeSecret(
    request: FastifyRequest,
    proof: AgentProof & { kind: 'node' },
    joining: boolean,
  ): Promise<void> {
    const standing = await nodes.standing(proof.node_id);
    if (!same(standing?.secret.hash ?? null, proof.hash))
      refuse(
        request,
        standing === null
          ? 'the node of this secret does not exist'
          : 'the node has another secret, or none',
      );
    if (standing?.secret.used === false && !joining)
      await nodes.secretUsed(proof.node_id, proof.hash);
  }

  async function joinToken(request: FastifyRequest, tokenId: string, hash: string): Promise<void> {
    if (!same(await joinTokens.storedHashOf(tokenId), hash))
      refuse(request, 'the join token does not exist');
    request.agent = { kind: 'join', token_id: tokenId, hash };
  }

  /**
   * Counts and refuses a wrong secret. Only wrong secrets are counted, so a correct one from the
   * same address still works.
   */
  function refuse(request: FastifyRequest, reason: string): never {
    guesses.begin(networkOf(request.ip));
    throw new AgentRefused(reason);
  }

  async function checkNode(request: FastifyRequest, nodeId: string): Promise<void> {
    const proof = proofOf(request);
    if (proof.kind === 'open') return;
    const standing = await nodes.standing(nodeId);
    if (proof.kind === 'node') {
      if (proof.node_id !== nodeId) throw new AgentRefused('the secret belongs to another node');
      // The secret might have been reset while this request was held.
      if (standing !== null && !same(standing.secret.hash, proof.hash))
        throw new AgentRefused('the node has another secret, or none');
      return;
    }
    await checkRequest(request);
    if (standing === null) return;
    if (standing.secret.hash !== null && standing.secret.used)
      throw new AgentRefused('the node has its own secret');
    if (!requireSecrets) return;
    if (standing.capabilities?.includes(NODE_SECRET) === true)
      throw new AgentRefused('REQUIRE_NODE_SECRETS is on');
    if (!(await admissions.has(standing.hostname, standing.role)))
      throw new AgentRefused(
        'REQUIRE_NODE_SECRETS is on and no admin has admitted this contract-only node',
      );
  }

  async function checkRequest(request: FastifyRequest): Promise<void> {
    if (proofOf(request).kind !== 'shared' || !requireSecrets) return;
    if (!(await admissions.hasAddress(request.ip)))
      throw new AgentRefused(
        'REQUIRE_NODE_SECRETS is on and no admitted node registered from this address',
      );
  }

  return {
    identify,
    checkBeat: beatCheckOf(nodes, checkNode),
    checkNode,
    checkRequest,
    async checkTask(request, taskId) {
      if (proofOf(request).kind === 'open') return;
      await checkRequest(request);
      const nodeId = nodeOfTask.get(taskId) ?? (await tasks.get(taskId)).node_id;
      nodeOfTask.set(taskId, nodeId);
      await checkNode(request, nodeId);
      nodes.heard(nodeId, uptime.estimate().at);
    },
  };
}

/** Returns `checkBeat`: a query only if the node’s own secret is not in memory. */
const beatCheckOf =
  (nodes: Pick<NodeStore, 'shownSecret'>, checkNode: Agents['checkNode']): Agents['checkBeat'] =>
  (request, nodeId) => {
    const proof = proofOf(request);
    const isOwn = proof.kind === 'node' && proof.node_id === nodeId;
    return isOwn && nodes.shownSecret(nodeId, proof.hash) ? undefined : checkNode(request, nodeId);
  };

/** Returns the proof that plugins/access.ts stored. Only for routes of agents. */
export function proofOf(request: FastifyRequest): AgentProof {
  if (request.agent === null) throw new Error('the route does not authenticate agents');
  return request.agent;
}

/** Returns the id from `berthnode_<id>_<43 random characters>`. */
function idIn(prefix: string, text: string): string | null {
  if (!text.startsWith(prefix)) return null;
  return /^([\w.-]{1,64})_[\w-]{43}$/.exec(text.slice(prefix.length))?.[1] ?? null;
}

const same = (known: string | null, given: string): boolean =>
  known !== null &&
  known.length === given.length &&
  timingSafeEqual(Buffer.from(known), Buffer.from(given));
