/**
 * Deployments that fail on a real engine: each has its own code and the container's last lines, and
 * the old container keeps serving.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TaskReport } from '@berth/wire/task';
import { deployTask, type TaskState, until } from '../fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';

const HTTPD = 'CMD ["httpd","-f","-p","8080","-h","/"]';
const IMAGES = {
  good: HTTPD,
  exits: 'CMD ["sh","-c","echo no such luck >&2; exit 7"]',
  mute: 'CMD ["sleep","1000"]',
  other: 'CMD ["httpd","-f","-p","9090","-h","/"]',
  loopback: 'CMD ["httpd","-f","-p","127.0.0.1:8080","-h","/"]',
  nothttp: 'CMD ["sh","-c","while true; do nc -l -p 8080 >/dev/null; done"]',
  hungry: 'CMD ["sh","-c","x=a; while true; do x=$x$x; done"]',
  noprogram: 'CMD ["/no/such/program"]',
  late: 'CMD ["sh","-c","sleep 2; exec httpd -f -p 8080 -h /"]',
} as const;
type ImageName = keyof typeof IMAGES;

describe.skipIf(missingParts !== undefined)('deployments that fail', () => {
  let parts: RealParts;
  let site: Site;
  const digests = new Map<ImageName, string>();
  beforeAll(async () => {
    parts = await startRealParts();
    await parts.engine.docker(
      ['login', '--username', 'berth', '--password-stdin', parts.registry.address],
      {
        input: parts.registry.password ?? '',
      },
    );
    for (const [name, command] of Object.entries(IMAGES)) {
      const tag = `${parts.registry.address}/app:${name}`;
      await parts.engine.docker(['build', '--quiet', '--tag', tag, '-'], {
        input: `FROM busybox:stable\n${command}\n`,
      });
      const pushed = await parts.engine.docker(['push', tag]);
      digests.set(
        name as ImageName,
        /digest: (sha256:[0-9a-f]{64})/.exec(pushed.stdout)?.[1] ?? '',
      );
    }
    site = await startSite(parts);
  }, 180_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  let generation = 0;
  function give(name: ImageName, payload: Parameters<typeof deployTask>[1] = {}): TaskState {
    generation += 1;
    const digest = digests.get(name) ?? '';
    return site.plane.give(
      deployTask(`dep-${generation}`, {
        image: `${parts.registry.address}/app@${digest}`,
        image_digest: digest,
        generation,
        container_name: `svc-app-g${generation}`,
        probe_seconds: 2,
        ...payload,
      }),
    );
  }
  async function deploy(
    name: ImageName,
    payload: Parameters<typeof deployTask>[1] = {},
  ): Promise<{ report: TaskReport; code: string | undefined; message: string; text: string }> {
    const { task } = give(name, payload);
    const report = await site.plane.reported(task.id, 40_000);
    const error = typeof report.result === 'object' ? report.result?.error : undefined;
    return {
      report,
      code: error?.code,
      message: error?.message ?? '',
      text: site.plane.text(task.id),
    };
  }
  const names = async (): Promise<string[]> =>
    (await parts.engine.docker(['ps', '--all', '--format', '{{.Names}}'])).stdout
      .trim()
      .split('\n')
      .sort();
  const serves = async (report: TaskReport): Promise<number> =>
    (
      await fetch(`http://${parts.engine.hostIp}:${report.host_port}/bin/busybox`, {
        method: 'HEAD',
      })
    ).status;

  let old: TaskReport;
  it('a healthy container is deployed and stays', async () => {
    const { report, message } = await deploy('good', {
      health_path: '/bin/busybox',
      probe_seconds: 10,
    });
    expect(report, message).toMatchObject({ status: 'completed' });
    old = report;
  });

  const cases: [ImageName, Parameters<typeof deployTask>[1], string, RegExp][] = [
    ['exits', { probe_seconds: 10 }, 'container_exited', /exit code 7/],
    ['mute', {}, 'container_not_listening', /no program listened/],
    ['other', {}, 'container_wrong_port', /9090.*port is 8080/],
    ['loopback', {}, 'container_loopback_only', /127\.0\.0\.1:8080/],
    ['nothttp', {}, 'probe_timeout', /did not answer HTTP/],
    ['good', { health_path: '/nothing/here' }, 'health_check_failed', /status 404/],
    ['hungry', { memory_bytes: 16 * 2 ** 20, probe_seconds: 15 }, 'container_exited', /memory/],
    [
      'noprogram',
      {},
      'container_start_failed|container_exited',
      /no such file|exit code 127|not found/i,
    ],
  ];
  for (const [name, payload, code, message] of cases) {
    it(`${name} ${payload?.health_path ?? ''} -> ${code}`, async () => {
      const outcome = await deploy(name, payload);
      expect(outcome.code, outcome.message).toMatch(new RegExp(`^(${code})$`));
      expect(outcome.message).toMatch(message);
      if (name === 'exits') expect(outcome.text).toContain('container| no such luck');
      expect(await names()).toEqual(['svc-app-g1']);
      expect(await serves(old)).toBe(200);
    });
  }
  it('a container that needs 2 s to start is deployed', async () => {
    const { report } = await deploy('late', { probe_seconds: 15 });
    expect(report.status).toBe('completed');
    await parts.engine.docker(['rm', '--force', report.container_id ?? '']);
  });
  it('an image that the registry lacks, or whose registry is unreachable, cannot be pulled', async () => {
    const missing = `sha256:${'0'.repeat(64)}`;
    expect(
      await deploy('good', {
        image: `${parts.registry.address}/app@${missing}`,
        image_digest: missing,
      }),
    ).toMatchObject({
      code: 'image_pull_failed',
    });
    expect(
      await deploy('good', {
        image: `${parts.engine.gatewayIp}:9/app@${missing}`,
        image_digest: missing,
      }),
    ).toMatchObject({
      code: 'registry_unreachable',
    });
  });
  it('a deployment cancelled during the probe is removed and reported', async () => {
    const state = give('mute', { probe_seconds: 60 });
    await until('the probe', () => site.plane.text(state.task.id).includes('probe|'));
    site.plane.cancel(state.task.id);
    const report = await site.plane.reported(state.task.id, 10_000);
    expect(report).toMatchObject({ status: 'failed', result: { error: { code: 'cancelled' } } });
    expect(await names()).toEqual(['svc-app-g1']);
  });
  it('a deployment lost during the probe is removed and not reported', async () => {
    const state = give('mute', { probe_seconds: 60 });
    await until('the probe', () => site.plane.text(state.task.id).includes('probe|'));
    site.plane.takeAway(state.task.id);
    await until('the container to go', () =>
      site.plane.registers.at(-1)?.containers?.every((c) => c.name === 'svc-app-g1'),
    );
    expect(state.report).toBeNull();
  });
  it('with recreate the old container is restarted if the new one fails, and stays stopped if it works', async () => {
    const bad = await deploy('exits', { replace: 'recreate', probe_seconds: 10 });
    expect(bad.code).toBe('container_exited');
    expect(await names()).toEqual(['svc-app-g1']);
    await until('it serves at its port again', () =>
      site.plane.registers
        .at(-1)
        ?.containers?.some(
          (c) => c.name === 'svc-app-g1' && c.state === 'running' && c.host_port === old.host_port,
        ),
    );
    const good = await deploy('good', { replace: 'recreate', probe_seconds: 10 });
    expect(good.report).toMatchObject({ status: 'completed' });
    // The old container stays until it is retired, after the proxy has switched.
    const running = await parts.engine.docker(['ps', '--format', '{{.Names}}']);
    expect(running.stdout.trim()).toBe(`svc-app-g${generation}`);
    expect(await names()).toEqual(['svc-app-g1', `svc-app-g${generation}`]);
  });
  it('a foreign container with the wanted name stays, and the new one gets another name', async () => {
    await parts.engine.docker([
      'run',
      '--detach',
      '--name',
      `svc-app-g${generation + 1}`,
      'busybox:stable',
      'sleep',
      '1000',
    ]);
    const outcome = await deploy('good', { probe_seconds: 10 });
    expect(outcome.report, outcome.message).toMatchObject({ status: 'completed' });
    expect(outcome.text).toContain('belongs to a container that Berth did not start');
  });
});
