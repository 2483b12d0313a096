import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  ExecError,
  type ExecOptions,
  type ExecResult,
  exec,
  execOk,
  exitError,
} from '../src/exec.ts';
import { redactor } from '../src/exec-output.ts';

// Each test starts one or two Node.js processes, which takes seconds on a busy machine.
vi.setConfig({ testTimeout: 30_000 });
afterAll(() => vi.resetConfig());

/** Runs a program in JavaScript, in place of a shell script. */
const node = (script: string, options: Partial<ExecOptions> = {}): Promise<ExecResult> =>
  exec([process.execPath, '-e', script], { env: { PATH: '/usr/bin:/bin' }, ...options });

const scratch = (): string => {
  const dir = mkdtempSync(path.join(tmpdir(), 'berth-exec-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
};
/** Treats a zombie process as ended: it does nothing and holds no resources. */
const lives = (pid: number): boolean => {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};
const pidIn = (file: string): Promise<number> =>
  vi.waitFor(() => {
    const pid = Number(readFileSync(file, 'utf8'));
    if (pid === 0) throw new Error('not written yet');
    return pid;
  }, 20_000);
/**
 * Starts a grandchild that ignores SIGTERM and holds the pipes open, writes its pid to `file`, and
 * waits.
 */
const withGrandchild = (file: string): string => `
  const { spawn } = require('node:child_process');
  const child = spawn(process.execPath, ['-e', 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000); process.stdout.write("up")'], { stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.once('data', () => require('node:fs').writeFileSync(${JSON.stringify(file)}, String(child.pid)));
  setInterval(() => {}, 1000);`;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
/** Memory in use, without garbage: how much of that there is depends on the machine. */
function reachableBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

describe('a program', () => {
  test('gets its arguments unchanged, its input and its folder, and inherits no environment', async () => {
    const dir = scratch();
    const script =
      'process.stdin.on("data", (d) => console.log(JSON.stringify({ in: String(d), argv: ' +
      'process.argv.slice(1), cwd: process.cwd(), env: Object.keys(process.env).sort() })))';
    const result = await exec([process.execPath, '-e', script, '--', '$(id)', 'a b', '"'], {
      env: { ONLY: '1' },
      cwd: dir,
      stdin: 'input',
    });
    expect(JSON.parse(result.stdout)).toEqual({
      in: 'input',
      argv: ['$(id)', 'a b', '"'],
      cwd: dir,
      env: ['ONLY'],
    });
    expect(result).toMatchObject({ code: 0, signal: null, ended: null });
  });

  test('with a non-zero exit is a normal result; execOk throws an error with the last output', async () => {
    const script = 'console.error("one\\ntwo\\nthree\\nfour"); process.exit(3)';
    expect(await node(script)).toMatchObject({ code: 3, stderr: 'one\ntwo\nthree\nfour\n' });
    const error = await execOk([process.execPath, '-e', script], { env: {} }).catch(
      (e: unknown) => e,
    );
    expect(error).toBeInstanceOf(ExecError);
    expect((error as ExecError).message).toMatch(/exited with 3: two · three · four$/);
    expect((error as ExecError).result?.code).toBe(3);
  });

  test('that a signal ends is reported with the signal', async () => {
    const result = await node('process.kill(process.pid, "SIGKILL")');
    expect(result).toMatchObject({ code: null, signal: 'SIGKILL' });
    expect(exitError(result).message).toContain('was killed by SIGKILL');
  });

  test.each([
    ['that does not exist', ['/nowhere/program'], {}, 'cannot start /nowhere/program'],
    ['that is not executable', ['/etc/passwd'], {}, 'cannot start /etc/passwd'],
    ['in a folder that does not exist', [process.execPath], { cwd: '/nowhere' }, 'cannot start'],
    ['without a name', [], {}, 'no program given'],
  ])('%s cannot be started', async (_, argv, options, message) => {
    const error = await exec(argv, { env: {}, ...options }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ExecError);
    expect((error as ExecError).message).toContain(message);
  });

  test('that does not read its input causes no error', async () => {
    expect(await node('process.exit(0)', { stdin: 'x'.repeat(1_000_000) })).toMatchObject({
      code: 0,
    });
  });
});

describe('its output', () => {
  test('arrives line by line as it is written, including a last line without a line end', async () => {
    const lines: string[] = [];
    await node('console.log("a"); console.error("b"); process.stdout.write("c")', {
      onLine: (line, stream) => lines.push(`${stream} ${line}`),
    });
    expect(lines.sort()).toEqual(['stderr b', 'stdout a', 'stdout c']);
  });

  test('is complete if the program exits right after writing a lot', async () => {
    const result = await node('for (let i = 0; i < 20000; i++) console.log("line " + i)');
    expect(result.stdout.split('\n')).toHaveLength(20_001);
    expect(result.stdout).toMatch(/line 19999\n$/);
  });

  test('is limited to its end, and long lines are truncated', async () => {
    const much = await node(
      'for (let i = 0; i < 1000; i++) console.log(String(i).padStart(9, "0"))',
      { maxOutput: 100 },
    );
    expect(much.stdout).toHaveLength(100);
    expect(much.stdout).toMatch(/000000999\n$/);
    const lines: string[] = [];
    await node('console.log("x".repeat(100000) + "END"); console.log("next")', {
      onLine: (line) => lines.push(line),
    });
    expect(lines).toHaveLength(2);
    expect(lines[0]).toBe(`${'x'.repeat(15_950)}… (line cut: 84053 more characters)`);
    expect(lines[1]).toBe('next');
  });

  test('stdout is data: a line that is truncated for onLine is complete in the result', async () => {
    const lines: string[] = [];
    const script = 'console.log(JSON.stringify({ value: "x".repeat(300000), after: 1 }))';
    const result = await node(script, { onLine: (line) => lines.push(line) });
    expect((JSON.parse(result.stdout) as { after: number }).after).toBe(1);
    expect(result.stdoutCut).toBe(false);
    expect(lines).toEqual([expect.stringMatching(/^.{15950}… \(line cut: \d+ more characters\)$/)]);
  });

  test('stdoutCut is true if stdout exceeds its limit', async () => {
    const result = await node(
      'for (let i = 0; i < 1000; i++) console.log(String(i).padStart(9, "0"))',
      { maxOutput: 95 },
    );
    expect(result.stdoutCut).toBe(true);
    // Only complete lines: half a line could be mistaken for another line.
    expect(result.stdout).toMatch(/^000000991\n.*000000999\n$/s);
  });

  test('maxLine raises the limit of a line, for callers that parse lines', async () => {
    const lines: string[] = [];
    await node('console.error("x".repeat(100000)); console.error("y".repeat(300000))', {
      maxLine: 200_000,
      onLine: (line) => lines.push(line),
    });
    expect(lines[0]).toBe('x'.repeat(100_000));
    expect(lines[1]).toBe(`${'y'.repeat(199_950)}… (line cut: 100050 more characters)`);
  });

  test('the time to process output grows linearly with its length', {
    timeout: 30_000,
  }, async () => {
    // 60 MB of output with a limit of 1 MiB. It takes longer than the time limit of this test if
    // each line copies the kept output.
    await node('const l = "x".repeat(99) + "\\n"; process.stdout.write(l.repeat(600_000))');
  });

  test.each([
    ['rewrite', ['2 %', '3 %']],
    ['end', ['1 %', '2 %', '3 %']],
    ['keep', ['1 %\r2 %', '3 %']],
  ] as const)(
    'a carriage return can %s a line; standard output keeps it',
    async (carriageReturns, expected) => {
      const lines: string[] = [];
      const result = await node('process.stdout.write("1 %\\r2 %\\r\\n3 %")', {
        carriageReturns,
        onLine: (line) => lines.push(line),
      });
      expect(lines).toEqual(expected);
      expect(result.stdout).toBe('1 %\r2 %\n3 %\n');
    },
  );

  test('room: the program waits in its writes, and nothing is lost; an end does not wait', {
    timeout: 30_000,
  }, async () => {
    const lines: string[] = [];
    let open: (() => void) | null = null;
    let waits = 0;
    const room = (): Promise<void> | null => {
      waits += 1;
      return waits > 3 ? null : new Promise<void>((resolve) => (open = resolve));
    };
    const running = node('for (let i = 0; i < 100000; i++) console.error("line " + i)', {
      room,
      onLine: (line) => lines.push(line),
    });
    for (let turn = 0; turn < 3; turn += 1) {
      await vi.waitFor(() => expect(open).not.toBe(null), 10_000);
      const resume = open as unknown as () => void;
      open = null;
      // Longer than the silence after an exit that closes the pipes.
      if (turn === 2) await new Promise((resolve) => setTimeout(resolve, 1_500));
      resume();
    }
    expect((await running).code).toBe(0);
    expect(lines).toHaveLength(100_000);

    const abort = new AbortController();
    const stuck = node('for (;;) console.error("x")', {
      signal: abort.signal,
      killAfterMs: 100,
      room: () => new Promise(() => undefined),
      onLine: () => abort.abort(),
    });
    expect(await stuck).toMatchObject({ ended: 'abort' });
  });

  test('an endless line does not fill the memory', { timeout: 30_000 }, async () => {
    let parts = 0;
    const used: number[] = [];
    const room = (): null => {
      if (parts++ % 400 === 0) used.push(reachableBytes());
      return null;
    };
    const result = await node(
      'const b = Buffer.alloc(1 << 20, 120); let n = 0; const w = () => { while (n < 300) { ' +
        'n++; if (!process.stdout.write(b)) return process.stdout.once("drain", w); } }; w()',
      { room },
    );
    expect(result.code).toBe(0);
    expect(result.stdout.length).toBeLessThanOrEqual(1_048_576);
    // A tenth of the 300 MiB that the program wrote.
    expect(used.length).toBeGreaterThan(10);
    expect((Math.max(...used) - (used[0] ?? 0)) / 2 ** 20).toBeLessThan(30);
  });

  test('CRLF line ends are accepted, and empty lines count', async () => {
    expect((await node('process.stdout.write("a\\r\\n\\nb\\rc\\r\\n")')).stdout).toBe(
      'a\n\nb\rc\n',
    );
  });

  test('characters that arrive in several pieces are put together', async () => {
    const result = await node(
      'const b = Buffer.from("grüße €\\n"); for (const x of b) require("node:fs").writeSync(1, ' +
        'Buffer.of(x))',
    );
    expect(result.stdout).toBe('grüße €\n');
  });
});

describe('secrets', () => {
  test('stay in stdout for parsing, so that a password that equals a word of the output changes nothing', async () => {
    const result = await node('console.log(JSON.stringify({ State: "running" }))', {
      redact: ['running'],
    });
    expect(JSON.parse(result.stdout)).toEqual({ State: 'running' });
  });

  test('never appear in lines, stderr, arguments or errors', async () => {
    const lines: string[] = [];
    const argv = [
      process.execPath,
      '-e',
      'console.log("token s3cret and s3cret-longer"); console.error("s3cret"); process.exit(1)',
      's3cret',
    ];
    const error = (await execOk(argv, {
      env: {},
      redact: ['s3cret', 's3cret-longer'],
      onLine: (line) => lines.push(line),
    }).catch((e: unknown) => e)) as ExecError;
    expect(JSON.stringify([lines, error.message, error.result])).not.toContain('s3cret');
    expect(lines).toContain('token *** and ***');
  });

  test('a truncated line does not show half a secret', async () => {
    const secret = 'abcdefghijklmnopqrstuvwxyz';
    const lines: string[] = [];
    const script =
      `console.log("x".repeat(15950 - 10) + "${secret}"); console.error("x".repeat(15950 - 10) + ` +
      `"${secret}")`;
    const result = await node(script, { redact: [secret], onLine: (line) => lines.push(line) });
    expect(lines).toHaveLength(2);
    for (const text of [...lines, result.stderr])
      expect(/[a-e]/.exec(text.replace(/ \(line cut: \d+ more characters\)/, ''))).toBe(null);
  });

  test('redaction that shortens a truncated line does not reveal half a secret', async () => {
    const secret = 'abcdefghij'.repeat(100);
    const lines: string[] = [];
    const script =
      `console.log(("${secret}").repeat(50) + "x".repeat(20000)); ` +
      `console.error(("${secret}").repeat(50) + "x".repeat(20000))`;
    const result = await node(script, { redact: [secret], onLine: (line) => lines.push(line) });
    expect(lines).toHaveLength(2);
    for (const text of [...lines, result.stderr])
      expect(/[a-e]/.exec(text.replace(/ \(line cut: \d+ more characters\)/, ''))).toBe(null);
  });

  test('the longest secret is replaced first, and empty secrets are ignored', () => {
    expect(redactor(['a', '', 'abc'])('abc a b')).toBe('*** *** b');
    expect(redactor([])('abc')).toBe('abc');
  });
});

describe('ending a program', () => {
  test('the time limit ends the whole process group, including processes that ignore SIGTERM', async () => {
    const file = path.join(scratch(), 'pid');
    const running = node(withGrandchild(file), { timeoutMs: 3_000, killAfterMs: 100 });
    const pid = await pidIn(file);
    const result = await running;
    expect(result.ended).toBe('timeout');
    expect(exitError(result).message).toContain('exceeded its time limit');
    await vi.waitFor(() => expect(lives(pid)).toBe(false));
  });

  test('an abort ends the whole process group', async () => {
    const file = path.join(scratch(), 'pid');
    const abort = new AbortController();
    const running = node(withGrandchild(file), { signal: abort.signal, killAfterMs: 100 });
    const pid = await pidIn(file);
    abort.abort();
    expect(await running).toMatchObject({ ended: 'abort' });
    await vi.waitFor(() => expect(lives(pid)).toBe(false));
  });

  test('a program that exits on SIGTERM is not killed', async () => {
    const abort = new AbortController();
    const running = node(
      'process.on("SIGTERM", () => { console.log("bye"); process.exit(0); }); setInterval(() ' +
        '=> {}, 1000); console.log("up")',
      {
        signal: abort.signal,
        onLine: () => abort.abort(),
      },
    );
    expect(await running).toMatchObject({ code: 0, ended: 'abort', stdout: 'up\nbye\n' });
  });

  test('a program is not started if the signal is already aborted', async () => {
    await expect(node('', { signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow(
      'stop',
    );
  });

  test('a grandchild that keeps the pipes open does not delay the result after the program’s exit', {
    timeout: 20_000,
  }, async () => {
    const file = path.join(scratch(), 'pid');
    const script = `const { spawn } = require('node:child_process');
      const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'inherit', detached: true });
      require('node:fs').writeFileSync(${JSON.stringify(file)}, String(child.pid));
      child.unref(); console.log('done'); process.exit(0);`;
    onTestFinished(async () => void process.kill(await pidIn(file), 'SIGKILL'));
    const result = await node(script, { timeoutMs: 10_000, killAfterMs: 100 });
    expect(result).toMatchObject({ stdout: 'done\n' });
  });

  test.runIf(process.platform === 'linux')(
    'dieWithParent: the program dies if this process gets SIGKILL',
    async () => {
      const file = path.join(scratch(), 'pid');
      const inner =
        `require('node:fs').writeFileSync(${JSON.stringify(file)}, String(process.pid)); ` +
        'setInterval(() => {}, 1000)';
      const outer = `import(${JSON.stringify(path.resolve(import.meta.dirname, '../src/exec.ts'))}).then(({ exec }) =>
      exec([process.execPath, '-e', ${JSON.stringify(inner)}], { env: {}, dieWithParent: true }))`;
      const abort = new AbortController();
      const running = node(outer, { signal: abort.signal });
      const pid = await pidIn(file);
      const parent = Number(
        /^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1],
      );
      process.kill(parent, 'SIGKILL');
      expect(await running).toMatchObject({ signal: 'SIGKILL', ended: null });
      await vi.waitFor(() => expect(lives(pid)).toBe(false));
    },
  );
});

describe('streams', () => {
  const env = { PATH: process.env['PATH'] };
  test('passes bytes in and out while the other side is slow, and loses none after the exit', async () => {
    const parts = Array.from({ length: 40 }, (_, i) => Buffer.alloc(50_000, i));
    async function* input(): AsyncGenerator<Buffer> {
      for (const part of parts) yield part;
    }
    const got: Buffer[] = [];
    // The program ends before the first part is taken.
    const slow = createGate();
    const run = exec(['head', '-c', '60000'], {
      env,
      input: input(),
      async onOutput(bytes) {
        await slow.opened;
        got.push(bytes);
      },
    });
    setTimeout(slow.open, 1_500);
    expect(await run).toMatchObject({ code: 0, stdout: '' });
    expect(Buffer.concat(got)).toEqual(Buffer.concat(parts).subarray(0, 60_000));
  });
  test('ends the program if a stream fails, and rejects with its error', async () => {
    async function* broken(): AsyncGenerator<Buffer> {
      yield Buffer.from('x');
      throw new Error('the input broke');
    }
    await expect(exec(['cat'], { env, input: broken() })).rejects.toThrow('the input broke');
    const refuse = async (): Promise<void> => Promise.reject(new Error('no room'));
    await expect(exec(['cat', '/dev/zero'], { env, onOutput: refuse })).rejects.toThrow('no room');
  });
});

function createGate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
