/** No value of a secret is left in text that an agent sends, whatever form it has there. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createLogShipper } from '../../src/link/log-shipper.ts';
import { createRedact, redactError } from '../../src/secrets/redaction.ts';
import { rawJsonReader } from '../../src/build/build-progress.ts';

const TOKEN = 'canary-7c21f9';
const PEM = '-----BEGIN KEY-----\nMIIcanaryline1\r\n  MIIcanaryline2\n-----END KEY-----\n';
const base64 = (text: string): string => Buffer.from(text).toString('base64');

describe('a value is removed', () => {
  test.each([
    ['as it is', TOKEN, `token=${TOKEN}!`, 'token=***!'],
    ['twice', TOKEN, `${TOKEN} ${TOKEN}`, '*** ***'],
    ['directly after itself', TOKEN, TOKEN + TOKEN, '******'],
    ['in base64', TOKEN, `auth ${base64(TOKEN)}`, 'auth ***'],
    ['in base64 with a newline, as echo and base64 print it', TOKEN, base64(`${TOKEN}\n`), '***'],
    [
      'in base64 inside a longer text, as in basic authentication',
      TOKEN,
      base64(`user:${TOKEN}`),
      'dXNlcjp***',
    ],
    ['in base64url', 'a?>b?>c?>d', Buffer.from('a?>b?>c?>d').toString('base64url'), '***'],
    [
      'in a URL',
      'p@ss/word?',
      `https://u:${encodeURIComponent('p@ss/word?')}@host`,
      'https://u:***@host',
    ],
    ['in JSON', 'say "hello"', JSON.stringify({ a: 'say "hello"' }), '{"a":"***"}'],
    ['whose lines are printed one by one', PEM, 'x MIIcanaryline1 y', 'x *** y'],
    ['whose indented lines are printed one by one', PEM, 'MIIcanaryline2', '***'],
    ['with newlines in JSON', PEM, JSON.stringify(PEM), '"***"'],
    ['without its last newline', `${TOKEN}\n`, TOKEN, '***'],
    ['with the mark inside', 'abc***def***', 'got abc***def***.', 'got ***.'],
    ['made of the mark', '******', 'x******y', 'x***y'],
    ['that is a regular expression', 'a.*b(c)[d]', 'a.*b(c)[d] axxb', '*** axxb'],
    ['beyond the basic plane', '🔑🔑🔑🔑', 'key 🔑🔑🔑🔑', 'key ***'],
  ])('%s', (_, value, text, shown) => {
    expect(createRedact([value])(text)).toBe(shown);
  });

  test('that overlaps or contains another one, whole', () => {
    const redact = createRedact(['abcdefgh', 'fghijklm', 'abcdefghijklmnop']);
    expect(redact('<abcdefghijklm>')).toBe('<***>');
    expect(redact('<abcdefghijklmnop>')).toBe('<***>');
    expect(createRedact(['secret-mark', '***-secret'])('secret-mark-secret')).toBe('***-secret');
  });

  test('at the end of a line that was cut in the middle of it', () => {
    const redact = createRedact([TOKEN]);
    expect(redact(`x ${TOKEN.slice(0, 9)}… (line cut: 7 more characters)`)).toBe(
      'x ***… (line cut: 7 more characters)',
    );
    expect(redact(`x ${TOKEN.slice(0, 9)}`)).toBe(`x ${TOKEN.slice(0, 9)}`);
  });

  test('in any text around it, in any of 100 values', () => {
    const word = fc.string({ minLength: 6, maxLength: 40 });
    fc.assert(
      fc.property(
        fc.array(word, { minLength: 1, maxLength: 100 }),
        fc.string(),
        fc.string(),
        fc.nat(),
        (values, before, after, n) => {
          const value = values[n % values.length] ?? '';
          const shown = createRedact(values)(before + value + after);
          // The mark itself may be a value.
          expect(value.includes('*') || !shown.includes(value)).toBe(true);
        },
      ),
      { numRuns: 300 },
    );
  });
});

test('short values stay: they would remove harmless text', () => {
  expect(createRedact(['1', 'true', 'a\nb'])('1 is true')).toBe('1 is true');
});

test('64 KiB of values in lines cost less than 20 times the plain text of a build', () => {
  const lines = Array.from({ length: 1_000 }, (_, i) => `${i}`.padStart(64, 'k'));
  const redact = createRedact([lines.join('\n')]);
  const text = 'npm http fetch GET 200 https://registry.npmjs.org/left-pad 12ms '.repeat(4);
  // CPU time of this thread: a busy machine does not change it.
  const costOf = (work: () => void): number => {
    const before = process.threadCpuUsage();
    for (let i = 0; i < 2_000; i++) work();
    const { user, system } = process.threadCpuUsage(before);
    return user + system;
  };
  // Reads each character once.
  const plain = costOf(() => void text.split('').join(''));
  expect(costOf(() => void redact(text))).toBeLessThan(20 * plain);
});

test('an error for the agent’s log has no value in its message, stack or cause, and no output', () => {
  const cause = Object.assign(new Error(`cause ${TOKEN}`), { result: { stdout: TOKEN } });
  const error = Object.assign(new Error(`failed with ${TOKEN}`, { cause }), {
    result: { stderr: TOKEN },
  });
  const shown = redactError(error, createRedact([TOKEN])) as Error;
  expect(shown.message).toBe('failed with ***');
  const all = [shown, shown.cause as Error]
    .map((e) => `${e.name} ${e.message} ${e.stack} ${JSON.stringify(e)}`)
    .join('\n');
  expect(all).not.toContain(TOKEN);
  expect(all).toContain('cause ***');
});

describe('the log of a task', () => {
  async function sent(lines: string[]): Promise<string[]> {
    const texts: string[] = [];
    const shipper = createLogShipper({
      send: async (_, batch) =>
        void texts.push(...batch.map(({ text, step }) => `${step ?? ''}|${text}`)),
      onDropped: (error) => {
        throw error;
      },
      redact: createRedact([TOKEN]),
    });
    for (const text of lines) shipper.push({ stream: 'stdout', step: `RUN ${text}`, text });
    await shipper.flush(AbortSignal.timeout(5_000));
    return texts;
  }
  test('has no value in text or step, not with escape sequences or colours inside it, and not at the cut of a long line', async () => {
    const [head, tail] = [TOKEN.slice(0, 7), TOKEN.slice(7)];
    const texts = await sent([
      TOKEN,
      `${head}\u001b[2K${tail}`,
      `${head}\u001b[31m${tail}`,
      'x'.repeat(15_975) + TOKEN,
    ]);
    expect(texts.join('\n')).not.toMatch(/canary-7/);
    expect(texts.slice(0, 3)).toEqual(['RUN ***|***', 'RUN ***|***', 'RUN ***|***']);
  });
  test('keeps the colours of lines without a value', async () => {
    expect(await sent(['\u001b[31mred\u001b[0m'])).toEqual([
      expect.stringContaining('|\u001b[31mred\u001b[0m'),
    ]);
  });

  test('has no value that the builder sends in two messages', async () => {
    const texts: string[] = [];
    const reader = rawJsonReader(({ text }) => void texts.push(text));
    const log = (data: string): void =>
      reader.read(JSON.stringify({ logs: [{ vertex: 'v', stream: 1, data: base64(data) }] }));
    reader.read(
      JSON.stringify({
        vertexes: [{ digest: 'v', name: '[1/1] RUN x', started: '2026-01-01T00:00:00Z' }],
      }),
    );
    log(`the token is ${TOKEN.slice(0, 5)}`);
    log(`${TOKEN.slice(5)} indeed\n`);
    expect((await sent(texts)).at(-1)).toContain('the token is *** indeed');
  });
});
