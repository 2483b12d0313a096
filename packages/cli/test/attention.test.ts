/** `berth status --all` names hosts without a good certificate, and works with a control plane that does not know about certificates. */
import type { Client } from '@berth/wire/client';
import { expect, test } from 'vitest';
import { overview } from '../src/attention.ts';

/** A control plane with these projects and nothing else. */
const clientOf = (projects: readonly object[]): Client =>
  ({ call: async (name: string) => ({ items: name === 'listProjects' ? projects : [], next_cursor: null }) }) as unknown as Client;
const project = (name: string, rest: object): object => ({ id: name, name, running_deployment_id: null, ...rest });
const certificate = (state: string, problem: string | null): object => ({
  certificate: { state, issuer: null, not_after: null, problem, checked_at: '2026-11-23T12:00:00.000Z' },
});

test('a host without a good certificate needs a person; a new host and an earlier control plane do not', async () => {
  const { needs } = await overview(
    clientOf([
      project('good', certificate('ok', null)),
      project('new', certificate('pending', null)),
      project('unchecked', { certificate: null }),
      project('earlier', {}),
      project('bad', certificate('invalid', 'the proxy has no certificate for bad.berth.test')),
    ]),
  );
  expect(needs).toEqual([
    {
      kind: 'certificate',
      subject: 'bad',
      message: 'the proxy has no certificate for bad.berth.test',
      next: 'search the log of the reverse proxy for this host',
    },
  ]);
});
