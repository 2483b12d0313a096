/** Inspects a repository through the API. */
import { lookAt as lookWith } from '@berth/wire/look-client';
import type { RepositoryLook } from '@berth/wire/repository-look';
import type { BodyOf } from '@berth/wire/routes';
import type { Cli } from '../cli.ts';

export function lookAt(cli: Cli, body: BodyOf<'createRepositoryLook'>): Promise<RepositoryLook> {
  const client = cli.client();
  return lookWith(
    {
      create: (input) => client.call('createRepositoryLook', input),
      get: (input) => client.exchange('getRepositoryLook', input),
      sleep: (ms) => cli.io.sleep(ms),
    },
    body,
  );
}
