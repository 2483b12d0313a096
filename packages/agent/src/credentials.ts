/**
 * What this agent shows the control plane in X-Agent-Secret: the node's own secret once it has one, before that JOIN_TOKEN or
 * AGENT_SECRET. The own one is given out once, so it is on the disk before it is used; and while an answer that may bring it is under
 * way, the boot_id is on the disk too: a process that was killed in between asks again as the same one, and gets another secret.
 */
import { randomUUID } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { ApiError } from '@berth/wire/client';
import { NODE_SECRET_PREFIX } from '@berth/wire/node';
import { orNull, syncFolder } from './data/disk.ts';

export type Credentials = {
  bootId: string;
  /** For every request but a register. */
  headers(): Record<string, string>;
  /**
   * Sends a register with what there is, the own secret first, until one is not refused, and keeps the secret that the answer brings.
   * `mayAsk`: whether a secret could be kept. Rejects as the last try did.
   */
  register<T extends { node_secret?: string }>(send: (headers: Record<string, string>, mayAsk: boolean) => Promise<T>): Promise<T>;
};
export type CredentialOptions = { stateDir: string; shared: string | undefined; joinToken: string | undefined; log: Logger };

export async function readCredentials({ stateDir, shared, joinToken, log }: CredentialOptions): Promise<Credentials> {
  const path = join(stateDir, 'node-secret');
  const pendingPath = join(stateDir, 'node-secret-boot');
  let own = await readOwn(path, log);
  const asked = own === null ? ((await orNull(readFile(pendingPath, 'utf8'))) ?? '').trim() : '';
  const bootId = asked === '' ? randomUUID() : asked;
  const joining = joinToken ?? shared;
  /** What the last register was let in with. */
  let working = own ?? joining;
  let pending = false;
  let complained = false;

  async function markPending(): Promise<boolean> {
    if (pending) return true;
    try {
      await writeSecretly(pendingPath, bootId);
      return (pending = true);
    } catch (err) {
      if (!complained) log.warn({ err, path: pendingPath }, 'nothing can be written here: this agent asks for no secret of its own');
      complained = true;
      return false;
    }
  }
  async function clearPending(): Promise<void> {
    pending = false;
    await rm(pendingPath, { force: true }).catch((err: unknown) => log.warn({ err }, 'a leftover of asking for a secret stays'));
  }
  async function keep(secret: string): Promise<void> {
    try {
      await writeSecretly(path, secret);
    } catch (err) {
      log.error({ err, path }, 'the node’s own secret could not be written down');
      // The shared one works on until the own one is shown; a join token does not.
      if (shared === undefined) working = own = secret;
      return;
    }
    working = own = secret;
    await clearPending();
    log.info('this node has a secret of its own now; AGENT_SECRET or JOIN_TOKEN is not sent any more');
  }

  return {
    bootId,
    headers: () => headerOf(working),
    async register(send) {
      const mayAsk = own !== null || (await markPending());
      const candidates = [...new Set([own, joinToken, shared])].filter((c) => c !== null && c !== undefined);
      for (const [i, candidate] of (candidates.length === 0 ? [undefined] : candidates).entries()) {
        try {
          const answer = await send(headerOf(candidate), mayAsk);
          working = candidate;
          if (answer.node_secret !== undefined) await keep(answer.node_secret);
          else if (pending) await clearPending();
          return answer;
        } catch (error) {
          if (!isRefused(error) || i >= candidates.length - 1) throw error;
        }
      }
      throw new Error('there is always one try');
    },
  };
}

const headerOf = (secret: string | undefined): Record<string, string> => (secret === undefined ? {} : { 'x-agent-secret': secret });

/** 429 is the answer to a wrong one too, when there were many. */
const isRefused = (error: unknown): boolean => error instanceof ApiError && (error.status === 401 || error.status === 429);

async function readOwn(path: string, log: Logger): Promise<string | null> {
  const text = ((await orNull(readFile(path, 'utf8'))) ?? '').trim();
  if (text === '' || text.startsWith(NODE_SECRET_PREFIX)) return text === '' ? null : text;
  log.warn({ path }, 'this file holds no secret of a node; it is left alone');
  return null;
}

/** Mode 0600, whole, and on the disk when it returns. */
async function writeSecretly(path: string, text: string): Promise<void> {
  const temporary = `${path}.new`;
  await rm(temporary, { force: true });
  await writeFile(temporary, text, { mode: 0o600, flag: 'wx', flush: true });
  await rename(temporary, path);
  await syncFolder(dirname(path));
}
