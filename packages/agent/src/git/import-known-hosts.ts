/**
 * Sends the host keys that this builder accepted before the control plane managed host keys. The
 * control plane imports them once, and a file marks that it has answered. The keys stay on disk,
 * because a build can still need their full text.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { MAX_SEEN_KEYS } from '@berth/wire/git';
import { retryUntilAnswered } from '../link/retry.ts';
import { KNOWN_HOSTS } from './run-git.ts';
import { knownHosts } from './host-keys.ts';

export type ImportOptions = {
  client: Client;
  nodeId: string;
  /** git’s HOME folder (handlers.ts). */
  homeDir: string;
  /** Debian’s ssh hashes host names in known_hosts, so only these hosts can be found there. */
  sshKeyHosts: readonly string[];
  signal: AbortSignal;
  log: Logger;
};

/** Maximum time in ms that the first tasks wait for the import. */
const WAIT_MS = 10_000;

export async function importKnownHosts({
  client,
  nodeId,
  homeDir,
  sshKeyHosts,
  signal,
  log,
}: ImportOptions): Promise<void> {
  const path = join(homeDir, KNOWN_HOSTS);
  const marker = `${path}.imported`;
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null || (await readFile(marker, 'utf8').catch(() => null)) !== null) return;
  const keys = knownHosts(
    text,
    sshKeyHosts.filter((host) => !host.includes('*')),
  ).slice(0, MAX_SEEN_KEYS);
  const within = AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)]);
  try {
    const { imported } = await retryUntilAnswered(
      () =>
        client.call('agentKnownHosts', {
          query: { node_id: nodeId },
          body: { keys },
          signal: within,
        }),
      { signal: within },
    );
    await writeFile(marker, '');
    if (imported > 0)
      log.info(
        { hosts: imported },
        'the control plane trusts the git hosts that this builder trusted before',
      );
  } catch (error) {
    if (signal.aborted) return;
    // 404 means an older control plane. The next start tries again.
    if (!(error instanceof ApiError && error.status === 404))
      log.warn({ err: error }, 'sending the known git hosts failed; will retry at the next start');
  }
}
