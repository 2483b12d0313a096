/**
 * Rules for the identity of agents. Pure; store/nodes.ts applies them to the locked row of the
 * node.
 */
import type { NodeRegister } from '@berth/wire/node';
import { DomainError } from '../platform/errors.ts';

/** Credential that the agent sent in X-Agent-Secret. `hash`: SHA-256 in hex. */
export type AgentProof =
  /** AGENT_SECRET is not set: every agent is accepted (development only). */
  | { kind: 'open' }
  /** `fingerprint`: fingerprint of the AGENT_SECRET that the agent sent. */
  | { kind: 'shared'; fingerprint: string }
  | { kind: 'node'; node_id: string; hash: string }
  | { kind: 'join'; token_id: string; hash: string };

/**
 * Rejects an agent with status 401. The response says only that the secret is wrong; `reason` is
 * for the server's log.
 */
export class AgentRefused extends DomainError {
  readonly reason: string;
  constructor(reason: string) {
    super('agent_secret');
    this.reason = reason;
  }
}

/** The proof of a registration, and the settings that apply to it. */
export type RegistrationContext = {
  proof: AgentProof;
  /**
   * REQUIRE_NODE_SECRETS: if true, the shared secret can only register contract-only nodes that an
   * admin has admitted.
   */
  requireSecrets: boolean;
  /** Client address of the request. */
  address: string;
  /** A node that has not reported for this long is offline. */
  offlineMs: number;
  /** Creates the secret of a node; null if this server issues none. */
  newSecret: ((nodeId: string) => NodeSecret) | null;
};
export type NodeSecret = { text: string; hash: string };

export const NODE_SECRET = 'node_secret';
export const wantsSecret = (input: Pick<NodeRegister, 'capabilities'>): boolean =>
  input.capabilities?.includes(NODE_SECRET) ?? false;

/**
 * The node's own secret in the database. `used`: the agent has sent this secret, which proves that
 * it received it.
 */
export type SecretState = { hash: string | null; used: boolean };
type KnownNode = { secret: SecretState; boot_id: string | null };

/**
 * Returns why the shared secret or a join token must not register this node, or null. The response
 * with a new secret might be lost, so the same process can request the secret again. Its boot_id,
 * which no other process knows, identifies it.
 */
export function registrationRefusal(
  node: KnownNode,
  input: Pick<NodeRegister, 'boot_id' | 'capabilities'>,
): string | null {
  if (node.secret.hash === null) return null;
  if (node.secret.used) return 'the node has a secret of its own';
  if (wantsSecret(input) && input.boot_id !== undefined && input.boot_id === node.boot_id)
    return null;
  return 'another process of the node has received its own secret';
}
