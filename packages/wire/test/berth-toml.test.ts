import { JOB_DEFAULTS } from '../src/job.ts';
import { describe, expect, it, test } from 'vitest';
import { berthToml, parseBerthToml, problemsText } from '../src/berth-toml.ts';
import { linesIn } from '../src/toml-lines.ts';

const problems = (text: string): string => {
  const parsed = parseBerthToml(text);
  return 'problems' in parsed ? problemsText('berth.toml', parsed.problems) : 'right';
};

const FULL = `# The settings of the shop
container_port = 3000
health_path = "/healthz"
memory_bytes = 268_435_456
cpus = 0.5

[env]
LOG_LEVEL = "info"
NOTE = """
[build]
two lines"""

[requires.labels]
"zone/part" = "a"

[build]
build_target = "web"
build_args = { NODE_ENV = "production" }
watch_paths = [
  "src/**", # code
  "package.json",
]
`;

describe('parseBerthToml', () => {
  it('returns the settings and the fields that they set', () => {
    expect(parseBerthToml(FULL)).toEqual({
      settings: {
        container_port: 3000,
        health_path: '/healthz',
        memory_bytes: 268_435_456,
        cpus: 0.5,
        env: { LOG_LEVEL: 'info', NOTE: '[build]\ntwo lines' },
        requires: { labels: { 'zone/part': 'a' } },
        build_target: 'web',
        build_args: { NODE_ENV: 'production' },
        watch_paths: ['src/**', 'package.json'],
      },
      keys: [
        'container_port',
        'health_path',
        'memory_bytes',
        'cpus',
        'env.LOG_LEVEL',
        'env.NOTE',
        'requires',
        'build_target',
        'build_args.NODE_ENV',
        'watch_paths',
      ],
    });
    expect(parseBerthToml('')).toEqual({ settings: {}, keys: [] });
  });

  it('returns processes as a list, and writes them as tables', () => {
    const text = '[processes.web]\nmemory_bytes = 67_108_864\n[processes.worker]\ncommand = ["w"]';
    const processes = [
      { name: 'web', memory_bytes: 67_108_864 },
      { name: 'worker', command: ['w'] },
    ];
    const parsed = parseBerthToml(text);
    expect(parsed).toEqual({ settings: { processes }, keys: ['processes'] });
    const stored = processes.map((one) => ({ ...one, count: 1, replace: null }));
    expect(parseBerthToml(berthToml({ processes: stored }))).toEqual({
      settings: { processes: processes.map((one) => ({ ...one, count: 1 })) },
      keys: ['processes'],
    });
    expect(berthToml({ processes: [{ name: 'web', count: 1 }] })).not.toContain('processes');
  });

  it('returns jobs as a list with a key for each, and writes them without defaults', () => {
    const text =
      '[jobs.report]\nschedule = "0 6 * * 1"\ncommand = ["r"]\ntimezone = "Europe/Berlin"';
    const report = {
      name: 'report',
      schedule: '0 6 * * 1',
      command: ['r'],
      timezone: 'Europe/Berlin',
    };
    expect(parseBerthToml(text)).toEqual({ settings: { jobs: [report] }, keys: ['jobs.report'] });
    // As the API answers it.
    const stored = structuredClone([{ ...JOB_DEFAULTS, ...report, next_runs: [], last_run: null }]);
    expect(parseBerthToml(berthToml({ jobs: stored }))).toEqual(parseBerthToml(text));
    expect(berthToml({ jobs: [] })).not.toContain('jobs');
  });

  it('reads and writes the devices of a job', () => {
    const job = { name: 'train', schedule: '@daily', command: ['t'] };
    const stored = [{ ...job, devices: { 'nvidia.com/gpu': 1 } }];
    expect(parseBerthToml(berthToml({ jobs: stored }))).toMatchObject({
      settings: { jobs: stored },
    });
  });

  test.each([
    ['health_path = "no"', 'line 1: health_path must begin with “/” and contain no spaces'],
    ['\n\ncontainer_port = 99999', 'line 3: container_port must be at most 65535'],
    ['container_port = "3000"', 'line 1: container_port must be a whole number'],
    ['container_port = 2026-01-31', 'line 1: container_port must be a whole number, not a date'],
    ['processes = 2026-01-31', 'line 1: processes must be an object, not a date'],
    ['jobs = 2026-01-31', 'line 1: jobs must be an object, not a date'],
    ['[jobs]\na = 2026-01-31', 'line 2: jobs.a must be an object, not a date'],
    ['[requires]\nlabels = 2026-01-31', 'line 2: requires.labels must be an object, not a date'],
    ['[processes]\nworker = 07:32:00', 'line 2: processes.worker must be an object, not a date'],
    ['[env]\nA = 1', 'line 2: env.A must be text'],
    ['env.A = 1', 'line 1: env.A must be text'],
    ['env = { A = 1 }', 'line 1: env.A must be text'],
    ['[env]\n"A-B" = "1"', 'line 2: env.A-B is not a valid name of a variable'],
    ['[env]\nA = "\\u0000"', 'line 2: env.A must not contain a NUL character'],
    ['[build]\nfoo = 1', 'line 2: build.foo is not a key of [build]'],
    ['[build]\nwatch_paths = [\n  "a",\n  3,\n]', 'line 2: build.watch_paths[1] must be text'],
    ['[requires.labels]\n"!" = "a"', 'line 2: requires.labels.! is not a valid name'],
    ['dockerfile_path = "x"', 'line 1: dockerfile_path belongs to the table [build]'],
    ['colour = 1', 'line 1: colour is not a key of berth.toml; its keys are container_port, '],
    ['name = "shop"', 'line 1: name cannot be set by a file of the repository'],
    ['volumes = []', 'line 1: volumes cannot be set by a file of the repository'],
    ['[jobs.report]\nschedule = "@daily"', 'line 1: jobs.report must have the key command'],
    [
      '[jobs.report]\ncommand = ["x"]\nschedule = "0 25 * * *"',
      'line 3: jobs.report.schedule Invalid value for hour: 25',
    ],
    [
      '[jobs.report]\ncommand = ["x"]\nschedule = "@daily"\ntimezone = "Mars"',
      'line 4: jobs.report.timezone must be an IANA time zone',
    ],
    ['[jobs.Report]\ncommand = ["x"]', 'line 1: jobs.Report is not a valid name of a job'],
    ['[jobs.a]\nwhen = 1', 'line 2: jobs.a.when is not a key of [jobs.a]'],
    ['[processes.worker]\ncount = 99', 'line 2: processes.worker.count must be at most 50'],
    ['[processes.worker]\ncommand = "a"', 'line 2: processes.worker.command must be a list'],
    [
      '[processes.worker]\nport = 1',
      'line 2: processes.worker.port is not a key of [processes.worker]',
    ],
    ['[processes.Worker]\ncount = 1', 'line 1: processes.Worker is not a valid name of a process'],
    ['settle_seconds = 601', 'line 1: settle_seconds must be at most 600'],
    ['release_command = "a"', 'line 1: release_command must be a list'],
    ['cpus = 1\ncpus = 2', 'line 2: trying to redefine an already defined table or value'],
    ['\nhealth_path = ', 'line 2: invalid value'],
  ])('%j', (text, message) => {
    expect(problems(text)).toContain(`berth.toml ${message}`);
  });

  test.each([
    ['a table', `cpus = 1\n[${'a.'.repeat(30_000)}a]`, 'line 2: a has more than 8 tables'],
    ['a key', `cpus = 1\n${'a.'.repeat(30_000)}a = 1`, 'line 2: a has more than 8 tables'],
    ['lists', `a = ${'['.repeat(60_000)}`, 'line 1: document contains excessively nested'],
    ['short lists', `a = ${'['.repeat(20)}${']'.repeat(20)}`, 'line 1: a has more than 8 tables'],
  ])('%s of 64 KiB: refused', (_, text, message) => {
    expect(problems(text)).toContain(`berth.toml ${message}`);
  });

  it('lists the problems by line, and no value of the file', () => {
    expect(problems('[env]\nTOKEN = "s3cret\n')).not.toContain('s3cret');
    const many = Array.from({ length: 80 }, (_, i) => `k${i} = 1`).join('\n');
    expect(problems(many)).toMatch(/line 1: .*line 5: .*; and more$/);
    // A file of 64 KiB with a mistake in each line.
    const nul = Array.from({ length: 4_000 }, (_, i) => `k${i}="\\u0000"`).join('\n');
    expect(problems(nul)).toContain('berth.toml line 1: k0 ');
    expect(problems('x = 1\n[env]\nA = 1\n[y]\nz = 1')).toMatch(/line 1: x.*line 3: .*line 4: y/);
  });
});

test.each([
  [['health_path'], 3],
  [['env', 'NOTE'], 9],
  [['requires', 'labels', 'zone/part'], 14],
  [['build'], 16],
  [['build', 'build_args', 'NODE_ENV'], 18],
  [['build', 'watch_paths', '1'], 19],
  [['absent'], null],
])('the line of %j is %s', (path, line) => {
  expect(linesIn(FULL)(path)).toBe(line);
});

test('a written file has the same settings when it is read', () => {
  const parsed = parseBerthToml(FULL);
  if ('problems' in parsed) throw new Error('the file is wrong');
  expect(parseBerthToml(berthToml(parsed.settings))).toMatchObject({ settings: parsed.settings });
  expect(berthToml({ health_path: null, env: {}, container_port: 8080 })).toBe(
    'container_port = 8080\n',
  );
});
