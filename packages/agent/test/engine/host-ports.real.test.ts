/**
 * Host ports of containers on a real engine: they stay through restarts of the engine, and a port
 * that another program has is skipped.
 */
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deployTask } from '../fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';

// As first process httpd ignores SIGTERM, and an engine that ends waits 10 s for it.
const PAGE =
  'STOPSIGNAL SIGKILL\nCMD ["sh","-c","mkdir -p /w; echo $NAME > /w/index.html; exec httpd -f -p 8080 -h /w"]';
const NAMES = ['p0', 'p1', 'p2', 'p3', 'p4', 'p5'];

describe.skipIf(missingParts !== undefined)('host ports', () => {
  let parts: RealParts;
  let site: Site;
  let digest = '';
  beforeAll(async () => {
    parts = await startRealParts();
    const { engine, registry } = parts;
    await engine.docker(['login', '--username', 'berth', '--password-stdin', registry.address], {
      input: registry.password ?? '',
    });
    const tag = `${registry.address}/app:page`;
    await engine.docker(['build', '--quiet', '--tag', tag, '-'], {
      input: `FROM busybox:stable\n${PAGE}\n`,
    });
    digest =
      /digest: (sha256:[0-9a-f]{64})/.exec((await engine.docker(['push', tag])).stdout)?.[1] ?? '';
    site = await startSite(parts);
  }, 180_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  let said = '';
  async function deploy(name: string): Promise<number> {
    const { task } = site.plane.give(
      deployTask(`dep-${name}`, {
        project_id: `prj-${name}`,
        image: `${parts.registry.address}/app@${digest}`,
        image_digest: digest,
        container_name: `svc-${name}`,
        env: { NAME: name },
      }),
    );
    const report = await site.plane.reported(task.id, 40_000);
    said = site.plane.text(task.id);
    expect(report, said).toMatchObject({ status: 'completed' });
    return report.host_port ?? 0;
  }
  const page = (port: number): Promise<string | null> =>
    fetch(`http://${parts.engine.hostIp}:${port}/`, { signal: AbortSignal.timeout(2_000) })
      .then(async (response) => (await response.text()).trim())
      .catch(() => null);

  it('stay while the engine restarts, so that no port ever answers for another project', {
    timeout: 240_000,
  }, async () => {
    const ports = new Map<string, number>();
    for (const name of NAMES) ports.set(name, await deploy(name));
    expect(new Set(ports.values()).size).toBe(NAMES.length);
    for (const signal of ['SIGTERM', 'SIGKILL', 'SIGTERM'] as const) {
      const wrong: string[] = [];
      const missing = new Set(NAMES);
      const restarting = parts.engine.faults?.restartDaemon(signal);
      await restarting;
      await waitFor(
        'every project answers at its port again',
        async () => {
          for (const [name, port] of ports) {
            const answer = await page(port);
            if (answer === name) missing.delete(name);
            else if (answer !== null) wrong.push(`${name} got ${answer}`);
          }
          return missing.size === 0;
        },
        { deadlineMs: 60_000 },
      );
      expect(wrong).toEqual([]);
    }
  });

  it('skip a port that another program has, even if it listens at one address only', {
    timeout: 90_000,
  }, async () => {
    const [first, busy] = [await deploy('before'), await deploy('busy')];
    await parts.engine.docker(['rm', '--force', 'svc-busy']);
    // The next port of the range that no container had.
    const taken = busy + (busy - first);
    const httpd = ['httpd', '-f', '-p', `127.0.0.1:${taken}`];
    await parts.engine.docker([
      'run',
      '--detach',
      '--name',
      'other',
      '--network',
      'host',
      'busybox:stable',
      ...httpd,
    ]);
    const port = await deploy('next');
    expect([first, busy, taken]).not.toContain(port);
    expect(said).toContain(`another program has port ${taken}`);
    expect(
      (
        await parts.engine.docker([
          'ps',
          '--all',
          '--filter',
          'label=berth.deployment=dep-next',
          '--quiet',
        ])
      ).stdout.trim(),
    ).toMatch(/^[0-9a-f]{12}$/);
    await parts.engine.docker(['rm', '--force', 'other']);
  });
});
