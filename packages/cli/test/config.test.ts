/** berth config: checks a file without a server, and writes the settings of a project. */
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { createWorld } from '../../control-plane/test/api/deployed.ts';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { type Person, person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
const withFile = (text: string | Buffer): Person => {
  const who = person();
  writeFileSync(join(who.cwd, 'berth.toml'), text);
  return who;
};

describe('berth config check', () => {
  it('says that there is no file, and ends with 0', async () => {
    const { code, out } = await person().berth(['config', 'check']);
    expect([code, out]).toEqual([
      0,
      'There is no berth.toml: the settings of the project apply.\n',
    ]);
  });

  it('names the settings of a right file, also by its path', async () => {
    const who = withFile('cpus = 1\n[env]\nA = "x"\n');
    const right = 'berth.toml is right; it sets cpus, env.A.\n';
    expect(await who.berth(['config', 'check'])).toMatchObject({ code: 0, out: right });
    expect(await who.berth(['config', 'check', 'berth.toml'])).toMatchObject({
      code: 0,
      out: right,
    });
    const json = await who.berth(['config', 'check', '--json']);
    expect(JSON.parse(json.out)).toEqual({
      file: 'berth.toml',
      exists: true,
      keys: ['cpus', 'env.A'],
    });
  });

  it('ends with 1 and names line, key and rule of each mistake', async () => {
    const who = withFile('health_path = "up"\n\n[build]\ndockerfile_path = "../Dockerfile"\n');
    const first = 'berth.toml line 1: health_path must begin with “/” and contain no spaces';
    expect(await who.berth(['config', 'check'])).toMatchObject({ code: 1, out: '' });
    expect((await who.berth(['config', 'check'])).err).toContain(first);
    const json = await who.berth(['config', 'check', '--json']);
    expect(JSON.parse(json.err)).toMatchObject({ code: 'config_invalid', detail: first });
    const rule = withFile('[build]\ndockerfile_path = "../Dockerfile"\n');
    expect((await rule.berth(['config', 'check'])).err).toContain(
      'berth.toml line 2: build.dockerfile_path must not contain a “..” part',
    );
  });

  test.each([
    ['a link', 'must be a plain file, not a link'],
    ['a large file', 'must have at most 65536 bytes (64 KiB)'],
    ['bytes', 'must be UTF-8 text'],
  ])('refuses %s as a builder does', async (what, rule) => {
    const large = what === 'a large file' ? '#'.repeat(70_000) : Buffer.from([0xff]);
    const who = what === 'a link' ? person() : withFile(large);
    if (what === 'a link') symlinkSync('/etc/hostname', join(who.cwd, 'berth.toml'));
    const { code, err } = await who.berth(['config', 'check']);
    expect(code).toBe(1);
    expect(err).toContain(rule);
  });
});

it('berth config show prints a file that config check accepts, with the values that hold now', async () => {
  const { api, url } = served;
  const world = await createWorld(api);
  const id = await createProject(api, {
    name: 'shop',
    env: { A: 'line\nline', QUOTE: '"' },
    build_target: 'web',
    requires: { labels: { zone: 'a' } },
  });
  const who = await signedIn(url);
  const before = await who.berth(['config', 'show', 'shop']);
  expect(before.out).toBe(
    [
      `#:schema ${url}/api/schemas/berth-toml.json`,
      '',
      '[requires.labels]',
      'zone = "a"',
      '',
      '[env]',
      'A = "line\\nline"',
      'QUOTE = "\\""',
      '',
      '[build]',
      'build_target = "web"',
      '',
    ].join('\n'),
  );
  writeFileSync(join(who.cwd, 'berth.toml'), before.out);
  expect((await who.berth(['config', 'check'])).code).toBe(0);
  expect(world.builder).not.toBe(id);
});
