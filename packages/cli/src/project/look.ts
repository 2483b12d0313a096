/** A look into a repository: one request, and held ones until a builder has answered. */
import type { CallResult } from '@berth/wire/client';
import type { RepositoryLook } from '@berth/wire/repository-look';
import type { BodyOf } from '@berth/wire/routes';
import type { Cli } from '../cli.ts';

/** Pause after a held answer without news: the control plane may be too busy to hold it. */
const HOLD_PAUSE_MS = 500;

export async function lookAt(cli: Cli, body: BodyOf<'createRepositoryLook'>): Promise<RepositoryLook> {
  const client = cli.client();
  let look: RepositoryLook = await client.call('createRepositoryLook', { body });
  let etag: string | null = null;
  // The control plane ends each look after a minute.
  while (look.state === 'waiting' && look.id !== null) {
    const held = { query: { wait: 25 }, timeoutMs: 40_000, headers: etag === null ? {} : { 'if-none-match': etag } };
    const next: CallResult<'getRepositoryLook'> = await client.exchange('getRepositoryLook', { params: { id: look.id }, ...held });
    etag = next.etag;
    look = next.answer ?? look;
    if (next.answer === null) await cli.io.sleep(HOLD_PAUSE_MS);
  }
  return look;
}
