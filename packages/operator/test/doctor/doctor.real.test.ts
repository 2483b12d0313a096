/**
 * `berth doctor` on a real engine, a real registry and a real control plane, and what it says when
 * they are lost.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repositoryRoot, toolsDir } from '@berth/testbed/config';
import { type Engine, startEngine, whyNoOwnEngine } from '@berth/testbed/engine';
import { freePort } from '@berth/testbed/ports';
import { run, type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import { type Registry, registryProgram, startRegistry } from '@berth/testbed/registry';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const missing =
  whyNoOwnEngine() ??
  (registryProgram() === undefined ? 'docker-registry is not installed' : undefined);
const BERTH = join(repositoryRoot, 'bin', 'berth');
const SECRET = 'an agent secret of this test';
const PASSWORD = 'a registry password of this test';

type Report = { roles: string[] } & Record<
  'findings' | 'not_checked' | 'notes' | 'ok',
  { check: string; text?: string; problem?: string }[]
>;

describe.skipIf(missing !== undefined)('berth doctor', () => {
  let dir: string;
  let engine: Engine;
  let registry: Registry;
  let plane: RunningProcess;
  let url: string;
  let settings: Record<string, string>;

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'berth-doctor-'));
    engine = await startEngine({
      dir: join(toolsDir, 'testbed'),
      name: 'doctor',
      private: true,
      fresh: true,
    });
    registry = await startRegistry({
      dir: join(dir, 'registry'),
      address: engine.gatewayIp,
      user: 'berth',
      password: PASSWORD,
    });
    const listen = `127.0.0.1:${await freePort()}`;
    url = `http://${listen}`;
    settings = {
      LISTEN: listen,
      DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      BASE_DOMAIN: 'berth.localhost',
      AGENT_SECRET: SECRET,
      REGISTRY_ADDR: registry.address,
      REGISTRY_USER: 'berth',
      REGISTRY_PASSWORD: PASSWORD,
    };
    plane = await startProcess([BERTH, 'control-plane'], {
      name: 'control-plane',
      env: settings,
      logFile: join(dir, 'log'),
    });
    await untilReady(plane, () => fetch(`${url}/readyz`).then(({ ok }) => ok), 60_000);
  }, 180_000);
  afterAll(async () => {
    await plane?.stop();
    await registry?.stop();
    await engine?.stop();
    await rm(dir, { recursive: true, force: true });
  }, 60_000);

  async function doctor(
    env: Record<string, string>,
  ): Promise<{ code: number | null; report: Report; shown: string }> {
    const ended = await run([BERTH, 'doctor', '--json'], {
      env,
      mayFail: true,
      deadlineMs: 60_000,
    });
    return {
      code: ended.code,
      report: JSON.parse(ended.stdout) as Report,
      shown: ended.stdout + ended.stderr,
    };
  }
  const builder = () => ({
    NODE_ROLE: 'builder',
    CONTROL_PLANE_URL: url,
    AGENT_SECRET: SECRET,
    DOCKER_HOST: engine.host,
    DOCKER_PLUGINS_DIR: join(toolsDir, 'docker-plugins'),
    STATE_DIR: dir,
  });
  const of = (list: Report['ok'], check: string): string[] =>
    list.flatMap((one) => (one.check === check ? [one.text ?? one.problem ?? ''] : []));

  it('a builder: engine, buildx, registry, clock and disk are checked', {
    timeout: 90_000,
  }, async () => {
    const { report, shown } = await doctor(builder());
    expect(report.roles).toEqual(['agent-builder']);
    expect(of(report.findings, 'container engine')).toEqual([]);
    expect(of(report.ok, 'container engine')).toEqual([
      expect.stringMatching(/^engine \d+/),
      expect.stringMatching(/^buildx .* builds$/),
    ]);
    expect(of(report.ok, 'registry')).toEqual([
      `the login at the registry ${registry.address} works`,
    ]);
    expect(of(report.ok, 'clock')).toEqual(['the clock agrees with the control plane']);
    expect([...of(report.ok, 'disk'), ...of(report.findings, 'disk')].join()).toContain(dir);
    for (const secret of [SECRET, PASSWORD]) expect(shown).not.toContain(secret);
  });

  it('a control plane: it answers, its key opens the secrets, and it has no backup', {
    timeout: 90_000,
  }, async () => {
    const { code, report } = await doctor(settings);
    expect(code).toBe(1);
    expect(of(report.ok, 'processes')).toEqual(['control-plane answers']);
    expect(of(report.ok, 'ports')).toEqual([expect.stringMatching(/ listens on port \d+$/)]);
    expect(of(report.ok, 'secrets')).toContain('the key of the secrets opens them');
    expect(of(report.findings, 'backups')).toEqual([
      'there is no backup, and no schedule for backups',
    ]);
  });

  it('an engine or a control plane that is lost is a finding or not checked, never ok', {
    timeout: 120_000,
  }, async () => {
    await engine.stop();
    await plane.stop();
    const { code, report } = await doctor(builder());
    expect(code).toBe(1);
    expect(of(report.findings, 'container engine')).toEqual([
      expect.stringMatching(/^the container engine does not answer \(DOCKER_HOST=/),
    ]);
    expect(of(report.not_checked, 'clock')).toEqual([
      expect.stringMatching(/^the clock: the control plane at .* does not answer/),
    ]);
    expect(of(report.not_checked, 'registry')).toEqual([
      expect.stringMatching(/does not answer \(connection refused\)$/),
    ]);
  });
});
