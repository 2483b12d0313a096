/** Log lines: fields are bounded, because strangers can cause lines. */
import { expect, it } from 'vitest';
import { createLogger } from '../src/log.ts';

it('cuts long texts, lists and errors in every field, and says how long they were', () => {
  const lines: string[] = [];
  const log = createLogger({
    name: 'x',
    level: 'info',
    format: 'json',
    destination: { write: (line) => void lines.push(line) },
  });
  const long = 'x'.repeat(100_000);
  const deep = { a: { b: { c: { d: { e: { f: long } } } } } };
  log.info(
    {
      path: long,
      nested: { list: [long], many: Array.from({ length: 1_000 }, () => 'y') },
      deep,
      token: 'hidden',
    },
    'request',
  );
  log.error({ err: new Error(long) }, 'failed');
  for (const line of lines) expect(line.length).toBeLessThan(20_000);
  const [first] = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(first).toMatchObject({
    path: `${'x'.repeat(4_000)}… (100000 characters)`,
    token: '***',
    msg: 'request',
  });
  expect(lines[1]).toContain('(100000 characters)');
  log.child({ project: 'p' }).info({ size: 3, at: null, ok: true, none: undefined }, 'short');
  expect(JSON.parse(lines[2] ?? '')).toMatchObject({ project: 'p', size: 3, at: null, ok: true });
});
