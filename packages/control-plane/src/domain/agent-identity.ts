/** How an agent shows who it is, and what that lets it do. Pure; store/nodes.ts decides by it on the row that it locks. */
import type { NodeRegister } from '@berth/wire/node';
import { DomainError } from './errors.ts';

/** What X-Agent-Secret was found to be. `hash`: SHA-256 in hex. */
export type AgentProof =
  /** AGENT_SECRET is not set: the contract accepts every agent (development only). */
  | { kind: 'open' }
  | { kind: 'shared' }
  | { kind: 'node'; node_id: string; hash: string }
  | { kind: 'join'; token_id: string; hash: string };

/** 401. The answer says only that the secret is wrong; `reason` is for the server's log. */
export class AgentRefused extends DomainError {
  readonly reason: string;
  constructor(reason: string) {
    super('agent_secret');
    this.reason = reason;
  }
}

/** One register: what proved it, and what the control plane may do about it. */
export type Entry = {
  proof: AgentProof;
  /** REQUIRE_NODE_SECRETS: the shared secret registers only contract-only nodes that an admin has admitted. */
  requireSecrets: boolean;
  /** Where the request came from. */
  address: string;
  /** A node that was not seen for so long is offline. */
  offlineMs: number;
  /** Makes the secret of a node; null: none are given out. */
  newSecret: ((nodeId: string) => NodeSecret) | null;
};
export type NodeSecret = { text: string; hash: string };

export const NODE_SECRET = 'node_secret';
export const wantsSecret = (input: Pick<NodeRegister, 'capabilities'>): boolean => input.capabilities?.includes(NODE_SECRET) ?? false;

/** What the row says of the node's secret. `used`: the agent has shown it, so it has it. */
export type SecretState = { hash: string | null; used: boolean };
type Known = { secret: SecretState; boot_id: string | null };

/**
 * Whether the shared secret or a join token may register this node. A secret whose answer may have been lost is given out again to
 * the process that asked for it: nobody else knows its boot_id.
 */
export function mayRegister(node: Known, input: Pick<NodeRegister, 'boot_id' | 'capabilities'>): string | null {
  if (node.secret.hash === null) return null;
  if (node.secret.used) return 'the node has a secret of its own';
  if (wantsSecret(input) && input.boot_id !== undefined && input.boot_id === node.boot_id) return null;
  return 'the node was given a secret of its own, and this is another process';
}
