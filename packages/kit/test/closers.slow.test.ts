import { spawn } from 'node:child_process';
import path from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { createClosers } from '../src/closers.ts';
import { createLogger, silentLogger } from '../src/log.ts';

function heard(): {
  log: ReturnType<typeof silentLogger>;
  lines: () => { what?: string; msg: string }[];
} {
  const lines: { what?: string; msg: string }[] = [];
  const stream = new Writable({
    write(chunk: Buffer, _, done) {
      lines.push(JSON.parse(chunk.toString()) as { what?: string; msg: string });
      done();
    },
  });
  return { log: pino(stream), lines: () => lines };
}

describe('closers', () => {
  test('close one after the other, the last added first', async () => {
    const order: string[] = [];
    const closers = createClosers(silentLogger());
    closers.add('database', () => order.push('database'));
    closers.add('server', async () => {
      await Promise.resolve();
      order.push('server');
    });
    await closers.close();
    expect(order).toEqual(['server', 'database']);
  });

  test('a closer that throws or never ends is logged, and the others still close', async () => {
    const { log, lines } = heard();
    const order: string[] = [];
    const closers = createClosers(log, 50);
    closers.add('first', () => order.push('first'));
    closers.add('hangs', () => new Promise(() => undefined));
    closers.add('rejects', () => Promise.reject(new Error('no')));
    closers.add('throws', () => {
      throw new Error('no');
    });
    await closers.close();
    expect(order).toEqual(['first']);
    expect(lines().map((l) => l.what)).toEqual(['throws', 'rejects', 'hangs']);
  });

  test('close only once, even if close is called twice', async () => {
    let times = 0;
    const closers = createClosers(silentLogger());
    closers.add('x', () => (times += 1));
    await Promise.all([closers.close(), closers.close()]);
    await closers.close();
    expect(times).toBe(1);
  });
});

describe('signals', () => {
  const run = (
    close: string,
    ...signals: NodeJS.Signals[]
  ): Promise<{ code: number | null; out: string }> => {
    const at = (name: string): string =>
      JSON.stringify(path.resolve(import.meta.dirname, `../src/${name}.ts`));
    const script = `
      const { createClosers, closeOnSignals } = await import(${at('closers')});
      const { silentLogger } = await import(${at('log')});
      const closers = createClosers(silentLogger());
      closers.add('x', ${close});
      closeOnSignals(closers, silentLogger());
      setInterval(() => {}, 1000);
      console.log('up');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      if (/up|closing/.test(text)) child.kill(signals.shift());
    });
    return new Promise((resolve) => child.on('close', (code) => resolve({ code, out })));
  };
  test.each(['SIGTERM', 'SIGINT'] as const)(
    '%s closes everything and exits with 0',
    async (signal) => {
      expect(await run('() => console.log("closed")', signal)).toEqual({
        code: 0,
        out: 'up\nclosed\n',
      });
    },
  );
  test('a second signal exits with 1 immediately', async () => {
    expect(
      await run(
        '() => { console.log("closing"); return new Promise(() => {}); }',
        'SIGTERM',
        'SIGTERM',
      ),
    ).toMatchObject({ code: 1 });
  });
});

test('the logger replaces values of fields with the names of secrets', async () => {
  const script = `
    const { createLogger } = await import(${JSON.stringify(path.resolve(import.meta.dirname, '../src/log.ts'))});
    createLogger({ name: 'x', level: 'info', format: 'json' }).info({ password: 'p1', req: { headers: { authorization: 'p2', cookie: 'p3' } }, body: { token: 'p4' }, ok: 'seen' }, 'hello');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  await new Promise((resolve) => child.on('close', resolve));
  const line = JSON.parse(out) as Record<string, unknown>;
  expect(line).toMatchObject({ name: 'x', msg: 'hello', ok: 'seen', password: '***' });
  expect(out).not.toMatch(/p[1-4]/);
  expect(() => createLogger({ name: 'x', level: 'silent', format: 'pretty' })).not.toThrow();
});
