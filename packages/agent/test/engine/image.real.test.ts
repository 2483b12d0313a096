/**
 * The configuration of images on a real engine: how the first process is stopped, HEALTHCHECK,
 * VOLUME, images that cannot run.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TaskReport } from '@berth/wire/task';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deployTask, retireTask, until } from '../fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';

/** Answers /slow after 3 s. `HANDLES`: finishes requests on this signal, then ends. */
const SERVER = `
const server = require('http').createServer((q, r) => (q.url === '/slow' ? setTimeout(() => r.end('done'), 3000) : r.end('ok')));
server.listen(8080);
const signal = process.env.HANDLES;
if (signal) process.on(signal, () => server.close(() => process.exit(0)));
`;
const FILES: Readonly<Record<string, string>> = {
  's.js': SERVER,
  'package.json': '{"name":"s","version":"1.0.0","scripts":{"start":"node /app/s.js"}}',
  'no-exec.sh': '#!/bin/sh\necho migrate\nnode /app/s.js\n',
  'exec.sh': '#!/bin/sh\necho migrate\nexec node /app/s.js\n',
  'trap.sh':
    '#!/bin/sh\nnode /app/s.js &\nchild=$!\ntrap "kill -TERM $child" TERM\nwait $child\nwait ' +
    '$child\n',
  'not-executable.sh': '#!/bin/sh\nexec node /app/s.js\n',
};
const BASE =
  'FROM node:24-slim\nWORKDIR /app\nENV HANDLES=SIGTERM\nCOPY . /app/\nRUN chmod +x no-exec.sh ' +
  'exec.sh trap.sh && chmod -x not-executable.sh\n';
const HTTPD = 'FROM busybox:stable\nCMD ["httpd","-f","-p","8080","-h","/"]\n';

describe.skipIf(missingParts !== undefined)('the configuration of an image', () => {
  let parts: RealParts;
  let site: Site;
  let context: string;
  /** Outside the context: one Dockerfile more does not change what the others copy. */
  let dockerfiles: string;
  beforeAll(async () => {
    parts = await startRealParts();
    await parts.engine.docker(
      ['login', '--username', 'berth', '--password-stdin', parts.registry.address],
      {
        input: parts.registry.password ?? '',
      },
    );
    context = join(parts.dir, 'context');
    await mkdir(context);
    dockerfiles = join(parts.dir, 'dockerfiles');
    await mkdir(dockerfiles);
    for (const [name, text] of Object.entries(FILES)) await writeFile(join(context, name), text);
    // The tests then push only what they add, not each the large layers of Node.js.
    const base = `${parts.registry.address}/app:base`;
    await writeFile(join(dockerfiles, 'base'), BASE);
    await build(base, join(dockerfiles, 'base'));
    await parts.engine.docker(['push', base], { deadlineMs: 150_000 });
    site = await startSite(parts);
  }, 180_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  const build = (tag: string, file: string): Promise<unknown> =>
    parts.engine.docker(['build', '--quiet', '--tag', tag, '--file', file, context]);
  type Up = {
    report: TaskReport;
    text: string;
    code: string | undefined;
    message: string;
    notes: string;
  };
  /** Builds, pushes and deploys the Dockerfile as its own project. */
  async function deploy(
    name: string,
    dockerfile: string,
    payload: Parameters<typeof deployTask>[1] = {},
  ): Promise<Up> {
    // A repository each, as of a project: the agent removes old images of a repository.
    const tag = `${parts.registry.address}/app-${name}:1`;
    const file = join(dockerfiles, name);
    await writeFile(file, dockerfile);
    await build(tag, file);
    await parts.engine.docker(['push', tag]);
    const given = {
      project_id: `prj-${name}`,
      image: tag,
      container_name: `svc-${name}`,
      probe_seconds: 20,
      ...payload,
    };
    const { task } = site.plane.give(deployTask(`dep-${name}`, given));
    const report = await site.plane.reported(task.id, 60_000);
    const error = typeof report.result === 'object' ? report.result?.error : undefined;
    const notes = (report.notes ?? []).map(({ kind, message }) => `${kind}: ${message}`).join('\n');
    return {
      report,
      text: site.plane.text(task.id),
      code: error?.code,
      message: error?.message ?? '',
      notes,
    };
  }
  async function retire(name: string, stop_grace_seconds: number): Promise<TaskReport> {
    const remove = [{ deployment_id: `dep-${name}`, reason: '' }];
    const { task } = site.plane.give(
      retireTask({
        project_id: `prj-${name}`,
        remove,
        keep: null,
        drain_seconds: 0,
        stop_grace_seconds,
      }),
    );
    return site.plane.reported(task.id, 60_000);
  }
  const reported = (name: string) =>
    site.plane.registers.at(-1)?.containers?.find((c) => c.name === `svc-${name}`);

  // These wait for seconds, for an answer or a signal, so they wait at the same time.
  it.concurrent.each([
    ['exec-form', 'CMD ["node","/app/s.js"]', 'ends'],
    ['shell-form', 'CMD node /app/s.js', 'either'],
    ['two-commands', 'CMD echo migrate && node /app/s.js', 'either'],
    ['npm-start', 'CMD ["npm","start"]', 'either'],
    ['script', 'ENTRYPOINT ["/app/no-exec.sh"]', 'killed'],
    ['script-with-exec', 'ENTRYPOINT ["/app/exec.sh"]', 'ends'],
    ['script-with-trap', 'ENTRYPOINT ["/app/trap.sh"]', 'ends'],
    ['no-handler', 'ENV HANDLES=\nCMD ["node","/app/s.js"]', 'killed'],
    ['stopsignal', 'ENV HANDLES=SIGINT\nSTOPSIGNAL SIGINT\nCMD ["node","/app/s.js"]', 'ends'],
  ])(
    'a request that is in progress at the stop is finished: %s',
    { timeout: 120_000 },
    async (name, instructions, end) => {
      const up = await deploy(name, `${BASE}${instructions}\n`);
      expect(up.report, up.text).toMatchObject({ status: 'completed' });
      const slow = fetch(`http://${parts.engine.hostIp}:${up.report.host_port}/slow`).then(
        (answer) => answer.text(),
      );
      // The answer to a later request shows that the server has the slow one.
      await (await fetch(`http://${parts.engine.hostIp}:${up.report.host_port}/`)).text();
      const { status, notes = [] } = await retire(name, 6);
      expect(await slow).toBe('done');
      expect(status).toBe('completed');
      const killed = expect.objectContaining({
        kind: 'killed',
        message: expect.stringMatching(
          /did not end within 6 s after SIGTERM \(stop_grace_seconds\) and was killed/,
        ),
      });
      if (end !== 'either') expect(notes).toEqual(end === 'killed' ? [killed] : []);
    },
  );

  it.concurrent('HEALTHCHECK counts before a version goes live, and while it runs', {
    timeout: 120_000,
  }, async () => {
    const check =
      'HEALTHCHECK --interval=1s --retries=1 CMD test ! -e /bad || { echo the database is ' +
      'gone; exit 1; }\n';
    const up = await deploy('checked', `${HTTPD}${check}`);
    expect(up.report, up.message).toMatchObject({ status: 'completed' });
    expect(up.text).toContain('running the HEALTHCHECK of the image: /bin/sh -c test ! -e /bad');
    await until('a healthy report', () => reported('checked')?.health?.status === 'healthy');
    await parts.engine.docker(['exec', 'svc-checked', 'touch', '/bad']);
    const sick = await until('an unhealthy report', () =>
      reported('checked')?.health?.status === 'unhealthy' ? reported('checked') : undefined,
    );
    expect(sick.health?.output).toBe('the database is gone');
    await parts.engine.docker(['exec', 'svc-checked', 'rm', '/bad']);
    await until('a healthy report again', () => reported('checked')?.health?.status === 'healthy');
  });
  it.concurrent.each([
    [
      'failing',
      'HEALTHCHECK --interval=1s --retries=1 CMD echo no database; exit 1',
      /did not pass.*HEALTHCHECK NONE.*no database$/,
    ],
    [
      'no-program',
      'HEALTHCHECK --interval=1h CMD ["curl","-f","http://localhost:8080/"]',
      /may lack the program of the check/,
    ],
  ])(
    'a HEALTHCHECK that fails from the start fails the deployment: %s',
    { timeout: 60_000 },
    async (name, check, message) => {
      const failed = await deploy(name, `${HTTPD}${check}\n`, { probe_seconds: 4 });
      expect(failed.code, failed.message).toBe('image_health_check_failed');
      expect(failed.message).toMatch(message);
      expect(
        (await parts.engine.docker(['ps', '--all', '--format', '{{.Names}}'])).stdout,
      ).not.toContain(`svc-${name}`);
    },
  );
  it.concurrent.each([
    ['hourly', 'HEALTHCHECK --interval=1h --start-period=1h CMD test -e /bin/busybox'],
    ['none', 'HEALTHCHECK NONE'],
  ])('a HEALTHCHECK does not hold a deployment: %s', { timeout: 60_000 }, async (name, check) => {
    const up = await deploy(name, `${HTTPD}${check}\n`);
    expect(up.report, up.message).toMatchObject({ status: 'completed' });
  });

  it('the story names a VOLUME whose data is lost, and a PORT that Berth overrides', {
    timeout: 60_000,
  }, async () => {
    const up = await deploy('volume', `${HTTPD}VOLUME /data\nENV PORT=3000\n`);
    expect(up.report, up.message).toMatchObject({ status: 'completed' });
    expect(up.notes).toMatch(/^image: the image declares VOLUME \/data: files there are lost/m);
    expect(up.notes).toMatch(/^image: the image sets PORT=3000; Berth sets PORT=8080/m);
  });
  it.concurrent.each([
    [
      'no-cmd',
      'FROM busybox:stable\nCMD []\n',
      'container_start_failed',
      /no ENTRYPOINT and no CMD; add CMD/,
    ],
    [
      'no-right',
      `${BASE}ENTRYPOINT ["/app/not-executable.sh"]\n`,
      'container_start_failed',
      /not executable: .*chmod/,
    ],
    [
      'no-such',
      'FROM busybox:stable\nCMD ["/no/such"]\n',
      'container_start_failed',
      /does not contain the program/,
    ],
    ['no-user', `${HTTPD}USER app\n`, 'container_start_failed', /USER names a user/],
    [
      'format',
      'FROM busybox:stable\nRUN echo echo > /s && chmod +x /s\nCMD ["/s"]\n',
      'container_exited|container_start_failed',
      /#!\/bin\/sh/,
    ],
    [
      'background',
      'FROM busybox:stable\nCMD ["sh","-c","httpd -p 8080 -h /"]\n',
      'container_exited',
      /exit code 0: .*foreground/,
    ],
    [
      'read-only',
      'FROM busybox:stable\nCMD ["sh","-c","echo x > /sys/x"]\n',
      'container_exited',
      /says that a path is read-only/,
    ],
    [
      'ipv6-only',
      `FROM node:24-slim\nCMD ["node","-e","require('http').createServer().listen({ port: ` +
        `8080, host: '::', ipv6Only: true })"]\n`,
      'probe_timeout',
      /\[::\]:8080, but did not answer over IPv4.*IPv6 only, make it listen on 0\.0\.0\.0:8080/,
    ],
    [
      'exposes',
      'FROM busybox:stable\nEXPOSE 9090\nCMD ["sleep","99"]\n',
      'container_not_listening',
      /exposes 9090 \(EXPOSE\)/,
    ],
  ])(
    'an image that cannot run says why: %s',
    { timeout: 60_000 },
    async (name, dockerfile, code, message) => {
      const failed = await deploy(name, dockerfile, { probe_seconds: 3 });
      expect(failed.code, failed.message).toMatch(new RegExp(`^(${code})$`));
      expect(failed.message).toMatch(message);
    },
  );
});
