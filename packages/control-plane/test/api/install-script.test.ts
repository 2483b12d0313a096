/** GET /install.sh: the script that installs Berth on a fresh machine. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createInstallScript } from '../../src/api/install-script.ts';
import { DomainError } from '../../src/domain/platform/errors.ts';
import { createApi } from './harness.ts';

test('everybody gets the script that comes with the program, as text for a shell', async () => {
  const api = await createApi();
  onTestFinished(() => api.close());
  const answer = await api.call('getInstallScript', { as: null });
  expect([answer.status, answer.headers['content-type']]).toEqual([
    200,
    'text/x-shellscript; charset=utf-8',
  ]);
  const shipped = join(import.meta.dirname, '../../../../deploy/install.sh');
  expect(answer.text).toBe(readFileSync(shipped, 'utf8'));
  const { etag } = answer.headers;
  const again = await api.call('getInstallScript', {
    as: null,
    headers: { 'if-none-match': String(etag) },
  });
  expect(again.status).toBe(304);
});

test('a program without it says so', () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-no-script-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const send = (): unknown =>
    createInstallScript(folder).send({ headers: {} } as never, {} as never);
  expect(send).toThrow(DomainError);
});
