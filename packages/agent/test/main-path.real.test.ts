/**
 * Clone, build, push, deploy, probe, report, redeploy, retire and rename, with real git, buildx,
 * registry and engine.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildTask, deployTask, retireTask, until } from './fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from './real-parts.ts';

/** The text differs in each run, because the engine keeps its build cache. */
const run = `RUN echo building ${Date.now()} && ls /www`;
const dockerfile =
  `FROM busybox:stable\nCOPY www /www\n${run}\nEXPOSE 8080\nCMD ` +
  `["httpd","-f","-p","8080","-h","/www"]\n`;

describe.skipIf(missingParts !== undefined)('the main path', () => {
  let parts: RealParts;
  let site: Site;
  beforeAll(async () => {
    parts = await startRealParts();
    site = await startSite(parts);
  }, 120_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  it('builds, deploys, redeploys, retires and renames', { timeout: 120_000 }, async () => {
    const { plane } = site;
    const { url, sha } = await parts.git.createRepo('site', {
      Dockerfile: dockerfile,
      'www/index.html': 'one\n',
    });
    const repository = `${parts.registry.address}/app`;

    const build = plane.give(buildTask({ git_url: url, image_repository: repository }));
    const built = await plane.reported(build.task.id, 60_000);
    expect(built, JSON.stringify(built)).toMatchObject({
      status: 'completed',
      image_tag: `${repository}:${sha}`,
      commit: sha,
    });
    expect(built).toMatchObject({
      commit_message: 'first commit',
      commit_author: 'Berth Testbed',
      arch: expect.stringMatching(/^(amd|arm)64$/),
    });
    expect(built.image_digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(plane.text(build.task.id)).toContain(`] ${run}| building`);
    expect(await parts.registry.tags('app')).toContain(sha);
    expect(await readdir(join(site.stateDir, 'work'))).toEqual([]);
    expect((await stat(join(site.stateDir, 'docker', 'config.json'))).mode & 0o777).toBe(0o600);

    const image = `${repository}@${built.image_digest}`;
    await parts.engine.docker(['image', 'rm', `${repository}:${sha}`]);
    const first = plane.give(
      deployTask('dep-a', {
        image,
        image_digest: built.image_digest ?? null,
        env: { GREETING: 'hello world', LINES: 'a\nb', HTTP_PROXY: 'http://nowhere' },
        memory_bytes: 64 * 2 ** 20,
        cpus: 0.5,
      }),
    );
    const up = await plane.reported(first.task.id, 40_000);
    expect(up, plane.text(first.task.id)).toMatchObject({
      status: 'completed',
      container_id: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(await (await fetch(`http://${parts.engine.hostIp}:${up.host_port}/`)).text()).toBe(
      'one\n',
    );
    const inspected = JSON.parse((await parts.engine.docker(['inspect', 'svc-app-g1'])).stdout)[0];
    expect(inspected.HostConfig).toMatchObject({
      Memory: 64 * 2 ** 20,
      NanoCpus: 5e8,
      PidsLimit: 4096,
      SecurityOpt: ['no-new-privileges'],
      RestartPolicy: { Name: 'unless-stopped' },
    });
    expect(inspected.HostConfig.LogConfig).toEqual({
      Type: 'json-file',
      Config: { 'max-file': '3', 'max-size': '10m' },
    });
    expect(inspected.Config.Env).toEqual(
      expect.arrayContaining([
        'PORT=8080',
        'GREETING=hello world',
        'LINES=a\nb',
        'HTTP_PROXY=http://nowhere',
      ]),
    );
    expect(inspected.Config.Labels).toMatchObject({
      'berth.project': 'prj-1',
      'berth.deployment': 'dep-a',
      'berth.generation': '1',
      'berth.node': 'node-1',
      'berth.task': first.task.id,
    });
    await until('the new container is registered', () =>
      plane.registers
        .at(-1)
        ?.containers?.find(
          (c) => c.labels['berth.deployment'] === 'dep-a' && c.host_port === up.host_port,
        ),
    );

    const second = plane.give(
      deployTask('dep-b', {
        image,
        image_digest: built.image_digest ?? null,
        generation: 2,
        container_name: 'svc-app-g2',
      }),
    );
    const up2 = await plane.reported(second.task.id, 40_000);
    expect(up2).toMatchObject({ status: 'completed' });
    expect((await fetch(`http://${parts.engine.hostIp}:${up.host_port}/`)).status).toBe(200);

    const retire = plane.give(
      retireTask({
        remove: [{ deployment_id: 'dep-a', reason: 'superseded' }],
        keep: { deployment_id: 'dep-b', name: 'svc-app' },
        drain_seconds: 1,
      }),
    );
    expect(await plane.reported(retire.task.id, 40_000), plane.text(retire.task.id)).toMatchObject({
      status: 'completed',
    });
    const names = (await parts.engine.docker(['ps', '--all', '--format', '{{.Names}}'])).stdout
      .trim()
      .split('\n');
    expect(names).toEqual(['svc-app']);
    expect((await fetch(`http://${parts.engine.hostIp}:${up2.host_port}/`)).status).toBe(200);
    // A repeated retire task changes nothing.
    const again = plane.give(
      retireTask({
        remove: [{ deployment_id: 'dep-a', reason: 'superseded' }],
        keep: { deployment_id: 'dep-b', name: 'svc-app' },
        drain_seconds: 5,
      }),
    );
    expect(await plane.reported(again.task.id, 4_000)).toMatchObject({ status: 'completed' });

    expect(
      await (await fetch(`http://127.0.0.1:${site.agent.healthPort()}/readyz`)).json(),
    ).toEqual({
      status: 'ready',
      reasons: [],
      refusal: null,
      notes: [expect.stringContaining('PROXY_IPS and PUBLISH_IP are not set')],
      warnings: [
        {
          kind: 'setting_missing',
          text: expect.stringContaining('PROXY_IPS and PUBLISH_IP are not set'),
        },
      ],
    });
    const metrics = await (
      await fetch(`http://127.0.0.1:${site.agent.healthPort()}/metrics`)
    ).text();
    expect(metrics).toContain(
      'berth_agent_tasks_finished_total{kind="build",outcome="completed"} 1\n',
    );
    expect(metrics).toContain(
      'berth_agent_tasks_finished_total{kind="retire",outcome="completed"} 2\n',
    );
    expect(metrics).toContain('berth_agent_build_duration_seconds_count{outcome="completed"} 1\n');
    expect(metrics).toMatch(
      /^berth_agent_build_info\{version="[\d.]+",role="deploy",node="[\d.]+"\} 1$/m,
    );
    expect(metrics).toMatch(/^berth_agent_disk_size_bytes [1-9]/m);
    expect(metrics).toMatch(/^berth_agent_disk_bytes\{use="images"\} [1-9]/m);
    expect(metrics).toMatch(/^berth_agent_last_registration_age_seconds \d+(\.\d+)?$/m);
    expect(metrics).toContain('berth_agent_engine_ok 1\n');
    expect(plane.requests.filter((r) => r === 'GET /api/agent/config')).toHaveLength(1);
    const said = [build, first, second, retire].map((s) => plane.text(s.task.id)).join('\n');
    expect(said).not.toContain('a secret of the registry');
    expect(await readFile(join(site.stateDir, 'docker', 'config.json'), 'utf8')).toContain(
      parts.registry.address,
    );
  });

  it('a container keeps its port when it restarts', { timeout: 60_000 }, async () => {
    const { plane } = site;
    const seen = () => plane.registers.at(-1)?.containers?.find((c) => c.name === 'svc-app');
    const before = await until('a report with the container', () => seen() ?? null);
    expect(before.host_port).toBeGreaterThanOrEqual(20_000);
    expect(before.host_port).toBeLessThan(30_000);
    await parts.engine.docker(['restart', '--time', '0', 'svc-app']);
    const after = await until('the report of the new start', () =>
      seen()?.started_at === before.started_at ? null : seen(),
    );
    expect(after).toMatchObject({ host_port: before.host_port, port_fixed: true });
    // The engine publishes the port before the program in the container listens.
    await waitFor(
      'the port answers',
      async () =>
        (await fetch(`http://${parts.engine.hostIp}:${after?.host_port}/`)).status === 200,
    );
  });
});
