/**
 * Manages the secret that the agent sends in X-Agent-Secret: the node's own secret if it has one,
 * otherwise JOIN_TOKEN or AGENT_SECRET. The control plane sends the node's own secret only once, so
 * the agent saves it to disk before using it. While a registration is in flight, the agent also
 * saves its boot_id: if the process is killed before the answer is saved, the next process asks
 * with the same boot_id and gets a new secret.
 */
import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';
import { ApiError } from '@berth/wire/client';
import { NODE_SECRET_PREFIX } from '@berth/wire/node';
import { nullIfMissing } from '../file-system.ts';

export type Credentials = {
  bootId: string;
  /** Replaces AGENT_SECRET or JOIN_TOKEN. */
  use(next: Partial<Pick<CredentialOptions, 'shared' | 'joinToken'>>): void;
  /** Returns the headers of all requests except the registration. */
  headers(): Record<string, string>;
  /**
   * Sends a registration with each known secret, the node's own first, until one is accepted. Saves
   * a secret from the answer. `maySave`: a secret could be saved. Rejects with the error of the
   * last try.
   */
  register<T extends { node_secret?: string }>(
    send: (headers: Record<string, string>, maySave: boolean) => Promise<T>,
  ): Promise<T>;
};
export type CredentialOptions = {
  stateDir: string;
  /**
   * AGENT_SECRET values. Requests use the first value; a registration tries the next value after a
   * 401.
   */
  shared: readonly string[];
  joinToken: string | undefined;
  log: Logger;
};

export async function readCredentials(options: CredentialOptions): Promise<Credentials> {
  const { stateDir, log } = options;
  let { shared, joinToken } = options;
  const path = join(stateDir, 'node-secret');
  const pendingPath = join(stateDir, 'node-secret-boot');
  let nodeSecret = await readNodeSecret(path, log);
  const savedBootId =
    nodeSecret === null ? ((await nullIfMissing(readFile(pendingPath, 'utf8'))) ?? '').trim() : '';
  const bootId = savedBootId === '' ? randomUUID() : savedBootId;
  /** The secret with which the last registration was accepted. */
  let accepted = nodeSecret ?? joinToken ?? shared[0];
  let pending = false;
  let warned = false;

  async function markPending(): Promise<boolean> {
    if (pending) return true;
    try {
      await writeFileWhole(pendingPath, bootId);
      return (pending = true);
    } catch (err) {
      if (!warned)
        log.warn(
          { err, path: pendingPath },
          'writing to STATE_DIR failed; this agent does not ask for a secret of its own',
        );
      warned = true;
      return false;
    }
  }
  async function clearPending(): Promise<void> {
    pending = false;
    await rm(pendingPath, { force: true }).catch((err: unknown) =>
      log.warn({ err }, 'removing the pending boot id failed'),
    );
  }
  async function save(secret: string): Promise<void> {
    try {
      await writeFileWhole(path, secret);
    } catch (err) {
      log.error({ err, path }, 'saving the node’s own secret failed');
      // AGENT_SECRET stays valid until the first use of the node’s own secret; a join token does
      // not.
      if (shared.length === 0) accepted = nodeSecret = secret;
      return;
    }
    accepted = nodeSecret = secret;
    await clearPending();
    log.info('this node has its own secret now; AGENT_SECRET and JOIN_TOKEN are not used any more');
  }

  return {
    bootId,
    use(next) {
      const wasShared = accepted !== undefined && shared.includes(accepted);
      shared = next.shared ?? shared;
      joinToken = next.joinToken ?? joinToken;
      if (wasShared) accepted = shared[0];
    },
    headers: () => headerOf(accepted),
    async register(send) {
      const maySave = nodeSecret !== null || (await markPending());
      const candidates = [...new Set([nodeSecret, joinToken, ...shared])].filter(
        (c) => c !== null && c !== undefined,
      );
      for (const [i, candidate] of (candidates.length === 0 ? [undefined] : candidates).entries()) {
        try {
          const answer = await send(headerOf(candidate), maySave);
          accepted = candidate;
          if (answer.node_secret !== undefined) await save(answer.node_secret);
          else if (pending) await clearPending();
          return answer;
        } catch (error) {
          if (!isRefused(error) || i >= candidates.length - 1) throw error;
        }
      }
      throw new Error('unreachable: there is always one candidate');
    },
  };
}

const headerOf = (secret: string | undefined): Record<string, string> =>
  secret === undefined ? {} : { 'x-agent-secret': secret };

/** 429 is the answer after many wrong secrets. */
const isRefused = (error: unknown): boolean =>
  error instanceof ApiError && (error.status === 401 || error.status === 429);

async function readNodeSecret(path: string, log: Logger): Promise<string | null> {
  const text = ((await nullIfMissing(readFile(path, 'utf8'))) ?? '').trim();
  if (text === '' || text.startsWith(NODE_SECRET_PREFIX)) return text === '' ? null : text;
  log.warn({ path }, 'this file does not hold a node secret; ignoring it');
  return null;
}
