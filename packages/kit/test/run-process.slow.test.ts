/** The order of a start and the exit codes of a process. */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { expect, test } from 'vitest';

type Ended = { code: number | null; out: string; lines: Record<string, unknown>[] };

/** Runs a process with this plan; `kill` is sent when it prints "up". */
async function run(
  plan: string,
  kill?: NodeJS.Signals,
  env: Record<string, string> = {},
): Promise<Ended> {
  const at = (name: string): string =>
    JSON.stringify(path.resolve(import.meta.dirname, `../src/${name}.ts`));
  const script = `
    const { runProcess } = await import(${at('run-process')});
    const { LOG_SETTINGS, integer, readSettings, SettingsError } = await import(${at('config')});
    const { createReloading } = await import(${at('reload')});
    const { failPoint, failPoints } = await import(${at('fail-point')});
    const SETTINGS = {
      ...LOG_SETTINGS,
      PORT: { doc: 'a port', default: '1', parse: integer(1) },
      BERTH_FAIL_POINTS: { doc: 'points', parse: failPoints },
    };
    const forever = () => new Promise(() => setInterval(() => {}, 1000));
    await runProcess({
      readConfig: () => readSettings(SETTINGS, process.env),
      logOf: () => ({ name: 'x', format: 'json' }),
      ${plan},
    });`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], ...env },
  });
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      if (text.includes('up') && kill !== undefined) child.kill(kill);
    });
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  const lines = out.split('\n').filter((line) => line.startsWith('{'));
  return { code, out, lines: lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

const CLOSES = "running.closers.add('part', () => console.log('closed'))";

test('SIGTERM closes the parts and exits with 0', async () => {
  const ended = await run(
    `start: async (running) => { ${CLOSES}; running.log.info('up'); await forever(); }`,
    'SIGTERM',
  );
  expect(ended.code).toBe(0);
  expect(ended.lines.map((line) => line['msg'])).toEqual(['up', 'shutting down']);
  expect(ended.out).toContain('closed');
});

test('wrong settings are all named, and exit with 2', async () => {
  const ended = await run(`start: async () => console.log('started')`, undefined, {
    PORT: 'http',
    LOG_LEVEL: 'loud',
  });
  expect(ended.code).toBe(2);
  expect(ended.out).toMatch(/^wrong settings:\n {2}LOG_LEVEL: must be .*\n {2}PORT: must be .*\n$/);
});

test('a setting that turns out to be wrong during the start exits with 2', async () => {
  const ended = await run(
    `start: async (running) => { ${CLOSES}; throw new SettingsError(['FILE: is not there']); }`,
  );
  expect([ended.code, ended.out]).toEqual([2, 'wrong settings:\n  FILE: is not there\nclosed\n']);
});

test('a start that fails logs why, closes what was started, and exits with 1', async () => {
  const start = `start: async (running) => { ${CLOSES}; throw new Error('port in use'); }`;
  const ended = await run(start);
  expect([ended.code, ended.lines]).toMatchObject([1, [{ level: 60, msg: 'port in use' }]]);
  expect(ended.out).toContain('closed');
  const named = await run(
    `logFailure: (log, error) => log.fatal({ err: error }, 'starting x failed'), ${start}`,
  );
  expect(named.lines).toMatchObject([
    { msg: 'starting x failed', err: { message: 'port in use' } },
  ]);
});

test('fail points act during the start', async () => {
  const ended = await run(`start: async () => { await failPoint('early'); }`, undefined, {
    BERTH_FAIL_POINTS: 'early=error',
  });
  expect([ended.code, ended.lines.at(-1)]).toMatchObject([1, { msg: 'fail point early' }]);
});

test('SIGHUP during the start is remembered, and does not end the process', async () => {
  const ended = await run(
    `reloading: (log) => createReloading(SETTINGS, process.env, log),
     start: async (running) => {
       setInterval(() => {}, 1000);
       console.log('up');
       await new Promise((resolve) => process.on('SIGHUP', resolve));
       running.ready({}, () => process.exit(0));
     }`,
    'SIGHUP',
  );
  expect(ended.code).toBe(0);
  expect(ended.lines.map((line) => line['msg'])).toEqual(['settings read again: nothing changed']);
});

test('a process that leaves signals to its supervisor dies of SIGTERM', async () => {
  const ended = await run(
    `handlesSignals: false, start: async () => { console.log('up'); await forever(); }`,
    'SIGTERM',
  );
  expect(ended.code).toBeNull();
});
