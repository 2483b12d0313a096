/** Traces of a deployment, from real processes to a receiver of OTLP over HTTP. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type OtlpReceiver,
  type ReceivedSpan,
  startOtlpReceiver,
} from '@berth/testbed/otlp-receiver';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();
const CANARY = 'canary-4f1c9d';

describe.skipIf(reason !== undefined)(
  `traces${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let receiver: OtlpReceiver;
    beforeAll(async () => {
      receiver = await startOtlpReceiver();
      const otel = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint };
      world = await startWorld({
        proxy: 'built-in',
        env: { ...otel, OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=berth%20test' },
        agentEnv: otel,
        gateway: {
          env: () => ({
            ...otel,
            OIDC_ISSUER: 'http://127.0.0.1:9',
            OIDC_CLIENT_ID: 'x',
            OIDC_CLIENT_SECRET: `${CANARY}-client`,
          }),
        },
      });
    });
    afterAll(async () => {
      await world?.stop();
      await receiver?.stop();
    });
    const traceOf = (id: string): ReceivedSpan[] =>
      receiver.spans.filter((span) => span.traceId === id.replaceAll('-', ''));

    it('a deployment is one trace: request, phases, tasks of both agents and their steps', {
      timeout: 180_000,
    }, async () => {
      const { berth, git, dir } = world;
      const { url } = await git.createRepo('traced', pageApp(1));
      const project = await berth.createProject({
        name: 'traced',
        git_url: url,
        domain_prefix: 'traced',
        env: { TOKEN: `${CANARY}-env` },
      });
      await berth.api.call('putSecret', {
        params: { id: project.id, name: 'PASSWORD' },
        body: { value: `${CANARY}-secret` },
      });
      const deployment = await berth.settled(
        await berth.deploy(project, { note: `${CANARY}-note` }),
      );
      expect(deployment.status).toBe('running');
      const wanted = [
        'berth-control-plane: deployment',
        'berth-control-plane: POST /api/projects/:id/deployments',
        ...['queue', 'build', 'place', 'start', 'route'].map(
          (name) => `berth-control-plane: phase ${name}`,
        ),
        ...['task build', 'clone', 'build', 'push'].map((name) => `berth-agent-builder: ${name}`),
        ...['task deploy', 'copy', 'start', 'probe', 'task retire'].map(
          (name) => `berth-agent-deploy: ${name}`,
        ),
        'berth-control-plane: POST /api/agent/tasks/:id/start',
        'berth-control-plane: POST /api/agent/tasks/:id/complete',
      ];
      const names = (): string[] =>
        traceOf(deployment.id).map(({ service, name }) => `${service}: ${name}`);
      await waitFor('all spans arrived', () => wanted.every((name) => names().includes(name)), {
        deadlineMs: 20_000,
      }).catch(() => undefined);
      expect(names()).toEqual(expect.arrayContaining(wanted));

      const spans = traceOf(deployment.id);
      const roots = spans.filter(({ parentId }) => parentId === null);
      expect(roots.map(({ name }) => name)).toEqual(['deployment']);
      const ids = new Set(spans.map(({ spanId }) => spanId));
      expect(
        spans
          .filter(({ parentId }) => parentId !== null && !ids.has(parentId))
          .map(({ name }) => name),
      ).toEqual([]);
      expect(spans.filter(({ startMs, endMs }) => endMs < startMs)).toEqual([]);
      expect(spans.filter(({ failed }) => failed)).toEqual([]);
      const [clone, build] = ['clone', 'build'].map((name) =>
        spans.find((span) => span.name === name),
      );
      expect(clone?.endMs).toBeLessThanOrEqual(build?.startMs ?? 0);

      // The logs of all processes lead to the trace.
      for (const name of ['control-plane', 'builder-1', 'node-1']) {
        const log = await readFile(join(dir, 'logs', `${name}.log`), 'utf8');
        expect(log, name).toContain(`"trace_id":"${deployment.id.replaceAll('-', '')}"`);
      }
    });

    it('a failed build is a failed trace, and the gateway has spans of its own', {
      timeout: 120_000,
    }, async () => {
      const { berth, git } = world;
      const { url } = await git.createRepo('broken', {
        Dockerfile: 'FROM busybox:stable\nRUN false\n',
      });
      const project = await berth.createProject({
        name: 'broken',
        git_url: url,
        domain_prefix: 'broken',
      });
      const deployment = await berth.settled(await berth.deploy(project));
      expect(deployment.status).toBe('failed');
      await fetch(
        `${berth.gateway?.readyUrl.replace('/readyz', '')}/_oauth/login?code=${CANARY}-code`,
        { redirect: 'manual' },
      );
      await waitFor('the spans arrived', () => {
        const failed = traceOf(deployment.id).filter((span) => span.failed);
        const login = receiver.spans.some(
          ({ service, name }) => service === 'berth-gateway' && name === 'GET /_oauth/login',
        );
        return (
          login &&
          ['deployment', 'task build', 'build'].every((name) =>
            failed.some((span) => span.name === name),
          )
        );
      });
    });

    it('no secret, no text of a person and no query is in what was sent', () => {
      const wire = receiver.wire.join('\n');
      expect(wire).toContain('"x-tenant":"berth test"');
      expect(wire).not.toContain(CANARY);
      for (const [name, secret] of Object.entries(world.berth.secrets))
        expect(wire.includes(secret), name).toBe(false);
    });

    it('the collector says nothing: deployments are not affected', {
      timeout: 120_000,
    }, async () => {
      const { berth, git } = world;
      receiver.behave('mute');
      const { url } = await git.createRepo('without', pageApp(1));
      const project = await berth.createProject({
        name: 'without',
        git_url: url,
        domain_prefix: 'without',
      });
      const asked = receiver.requests();
      expect((await berth.settled(await berth.deploy(project))).status).toBe('running');
      await waitFor('the processes tried to send', () => receiver.requests() > asked);
      // A process that ends does not wait for the collector.
      const from = performance.now();
      expect(await berth.agents['builder-1']?.stop()).toBe(0);
      expect(performance.now() - from).toBeLessThan(10_000);
    });
  },
);
