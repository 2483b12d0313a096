/** Why a new container is not healthy. */
import { expect, it } from 'vitest';
import { exitFailure, probeFailure } from '../src/diagnosis.ts';

const facts = { containerPort: 8080, healthPath: null, probeSeconds: 5, last: null, listeners: null };
const on = (address: string, port: number) => ({ address, port, loopback: address.startsWith('127.') || address === '::1' });
it.each([
  [{ ...facts }, 'probe_timeout'],
  [{ ...facts, listeners: [] }, 'container_not_listening'],
  [{ ...facts, listeners: [on('0.0.0.0', 9090)] }, 'container_wrong_port'],
  [{ ...facts, listeners: [on('127.0.0.1', 9090)] }, 'container_wrong_port'],
  [{ ...facts, listeners: [on('127.0.0.1', 8080), on('0.0.0.0', 9090)] }, 'container_loopback_only'],
  [{ ...facts, listeners: [on('127.0.0.1', 8080), on('::', 8080)] }, 'probe_timeout'],
  [{ ...facts, healthPath: '/ok', last: { kind: 'status' as const, status: 500 }, listeners: [on('::', 8080)] }, 'health_check_failed'],
])('the diagnosis of %o is %s', (given, code) => {
  expect(probeFailure(given).code).toBe(code);
});
it('exitFailure reports a memory limit that was exceeded', () => {
  expect(exitFailure({ exitCode: 137, oomKilled: true, error: '' }, 64 * 2 ** 20).message).toContain('limit of 64 MiB');
  expect(exitFailure({ exitCode: 1, oomKilled: false, error: '' }, null).message).toBe('The container exited unexpectedly: exit code 1');
});
