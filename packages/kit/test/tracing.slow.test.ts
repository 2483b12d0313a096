/** Traces: off by default, ids, and a collector that is down. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { newSpanId, newTraceId, readTraceparent, traceOf, traceparent } from '../src/trace-ids.ts';
import { openTracing } from '../src/tracing.ts';

const SERVICE = { name: 'test', version: '1' };
const ID = '0b7c2f1e-9d3a-4c55-8f01-6a2b3c4d5e6f';

test('the trace of a deployment has its id', () => {
  expect(traceOf(ID)).toEqual({
    traceId: '0b7c2f1e9d3a4c558f016a2b3c4d5e6f',
    rootId: '8f016a2b3c4d5e6f',
  });
  for (const id of ['d1', '', `${ID}0`, ID.toUpperCase()]) expect(traceOf(id)).toBeNull();
});

test('traceparent: what was written is read; anything else is nothing', () => {
  const [traceId, spanId] = [newTraceId(), newSpanId()];
  expect(readTraceparent(traceparent(traceId, spanId))).toEqual({ traceId, spanId });
  const wrong = [
    undefined,
    '',
    '00',
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    [traceId],
    `ff-${traceId}-${spanId}-01`,
  ];
  for (const header of wrong) expect(readTraceparent(header)).toBeNull();
});

test('without an endpoint nothing is loaded', () => {
  const program = `
    const { openTracing } = await import('${join(import.meta.dirname, '../src/tracing.ts')}');
    const tracing = await openTracing({ OTEL_TRACES_SAMPLER_ARG: 1 }, { name: 'a', version: '1' }, { warn() {} });
    const { createRequire } = await import('node:module');
    process.stdout.write(JSON.stringify([tracing, Object.keys(createRequire(import.meta.url).cache).length]));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    // A module of OpenTelemetry would appear here.
    env: { ...process.env, NODE_DEBUG: 'esm' },
  });
  expect(stdout).toBe('[null,0]');
  expect(stderr).not.toContain('opentelemetry');
});

test('a collector that is down: at most 2,048 spans wait, one warning, and closing takes no time', async () => {
  let requests = 0;
  const server = createServer((request) => {
    requests++;
    request.socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const warnings: unknown[] = [];
  const log = { warn: (...line: unknown[]) => void warnings.push(line) } as unknown as Parameters<
    typeof openTracing
  >[2];
  const tracing = await openTracing(
    { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER_ARG: 1 },
    SERVICE,
    log,
  );
  const before = process.memoryUsage().heapUsed;
  const from = process.threadCpuUsage();
  for (let i = 0; i < 100_000; i++)
    tracing?.record({
      name: 'a',
      traceId: newTraceId(),
      parentId: null,
      startMs: 1,
      endMs: 2,
      attributes: { text: 'x'.repeat(1_000) },
    });
  const { user, system } = process.threadCpuUsage(from);
  const each = (user + system) / 1_000 / 100_000;
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(200e6);
  // CPU time in ms; a span that is dropped costs little.
  expect(each).toBeLessThan(0.2);
  await tracing?.close();
  expect(requests).toBeGreaterThan(0);
  expect(warnings.length).toBeLessThanOrEqual(1);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
