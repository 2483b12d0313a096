/**
 * Failure codes of real output of git 2.39, docker 28 (CLI) with a 20.10 engine, buildx 0.29 and
 * git hosts.
 */
import { ExecError } from '@berth/kit/exec';
import { describe, expect, it } from 'vitest';
import { gitFailure, unknownBranch } from '../src/git/git-failures.ts';
import {
  classify,
  PULL_FAILURES,
  REGISTRY_FAILURES,
  TaskFailure,
  taskErrorOf,
} from '../src/failures.ts';
import { builderProblem, buildFailure } from '../src/build/buildx.ts';

const spec = {
  url: 'http://git.example/timeout-certificate.git',
  branch: 'connection-refused',
  commit: '0123456789'.repeat(4),
};

describe('git', () => {
  it.each([
    [
      "Cloning into '.'...\nwarning: Could not find remote branch nope to clone.\nfatal: " +
        'Remote branch nope not found in upstream origin',
      'git_unknown_branch',
    ],
    [`fatal: Remote branch ${spec.branch} not found in upstream origin`, 'git_unknown_branch'],
    [`fatal: repository '${spec.url}/' not found`, 'git_repository_not_found'],
    [
      "remote: Repository not found.\nfatal: repository 'https://github.com/x/y.git/' not found",
      'git_repository_not_found',
    ],
    [
      'ERROR: Repository not found.\nfatal: Could not read from remote repository.\n\nPlease ' +
        'make sure you have the correct access rights\nand the repository exists.',
      'git_repository_not_found',
    ],
    [`remote: 401\nfatal: Authentication failed for '${spec.url}/'`, 'git_credentials'],
    [
      "fatal: could not read Username for 'https://github.com': terminal prompts disabled",
      'git_credentials',
    ],
    [
      "fatal: unable to access 'http://127.0.0.1:34545/a.git/': The requested URL returned " +
        'error: 403',
      'git_credentials',
    ],
    [
      'git@github.com: Permission denied (publickey).\nfatal: Could not read from remote ' +
        'repository.',
      'git_credentials',
    ],
    [
      "fatal: unable to access 'http://127.0.0.1:34545/a.git/': The requested URL returned " +
        'error: 503',
      'git_failed',
    ],
    [
      '@@@\n@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\n@@@\nPermissions 0644 ' +
        'for \'/root/.ssh/id_ed25519\' are too open.\nLoad key "/root/.ssh/id_ed25519": bad ' +
        'permissions\ngit@h: Permission denied (publickey).',
      'git_key_readable',
    ],
    [
      "fatal: unable to access 'http://127.0.0.1:34545/a.git/': Operation too slow. Less than " +
        '1000 bytes/sec transferred the last 1 seconds',
      'git_timeout',
    ],
    [
      'ssh: connect to host 10.9.9.9 port 22: Connection timed out\nfatal: Could not read from ' +
        'remote repository.',
      'git_timeout',
    ],
    [
      "fatal: unable to access 'http://127.0.0.1:9/x.git/': Failed to connect to 127.0.0.1 " +
        "port 9 after 0 ms: Couldn't connect to server",
      'git_unreachable',
    ],
    [
      "fatal: unable to access 'https://nope.invalid/x.git/': Could not resolve host: nope.invalid",
      'git_unreachable',
    ],
    [
      'ssh: connect to host 127.0.0.1 port 9: Connection refused\nfatal: Could not read from ' +
        'remote repository.',
      'git_unreachable',
    ],
    [
      'ssh: Could not resolve hostname nope.invalid: Name or service not known\nfatal: Could ' +
        'not read from remote repository.',
      'git_unreachable',
    ],
    [
      'Host key verification failed.\nfatal: Could not read from remote repository.',
      'git_unreachable',
    ],
    [
      "fatal: unable to access 'https://x/': SSL certificate problem: self-signed certificate",
      'git_unreachable',
    ],
    ["fatal: transport 'file' not allowed", 'git_failed'],
    [
      'fatal: remote error: upload-pack: not our ref 0123456789012345678901234567890123456789',
      'git_unknown_commit',
    ],
    [
      'error: Server does not allow request for unadvertised object ' +
        'c65ababc43045b727ecc00e2a0dc035048452296',
      'git_commit_refused',
    ],
    [
      "fatal: sha1 file '.git/objects/pack/tmp_idx_x' write error. Out of diskspace\nfatal: " +
        'fetch-pack: invalid index-pack output',
      'disk_full',
    ],
    ['fatal: write error: No space left on device', 'disk_full'],
    ['error: unable to write file ballast\nfatal: unable to checkout working tree', 'disk_full'],
    [
      'error: cannot run ssh -oBatchMode=yes -oConnectTimeout=15: No such file or ' +
        'directory\nfatal: unable to fork',
      'git_failed',
    ],
    [`fatal: something about ${spec.url} on ${spec.branch}`, 'git_failed'],
  ])('%s', (stderr, code) => {
    expect(gitFailure(stderr, spec).code).toBe(code);
  });
});

describe('registry and engine', () => {
  it.each([
    [
      'Error response from daemon: login attempt to http://10.99.1.1:38277/v2/ failed with ' +
        'status: 401 Unauthorized',
      'registry_refused',
    ],
    ['no basic auth credentials', 'registry_refused'],
    ['denied: requested access to the resource is denied', 'registry_refused'],
    [
      'failed to push x: unexpected status from HEAD request to ' +
        'http://10.0.0.1:5000/v2/app/blobs/sha256:1: 401 Unauthorized',
      'registry_refused',
    ],
    [
      'Get "http://10.99.1.1:9/v2/": dial tcp 10.99.1.1:9: connect: connection refused',
      'registry_unreachable',
    ],
    [
      'Get "https://10.99.1.1:5000/v2/": http: server gave HTTP response to HTTPS client',
      'registry_unreachable',
    ],
    [
      'Error response from daemon: Get "https://nope.invalid/v2/": dial tcp: lookup ' +
        'nope.invalid on 10.0.2.3:53: no such host',
      'registry_unreachable',
    ],
    ['received unexpected HTTP status: 500 Internal Server Error', 'registry_failed'],
    [
      'failed commit on ref "layer": unexpected status from PUT request to ' +
        'http://r/v2/app/blobs: 507 Insufficient Storage',
      'registry_failed',
    ],
    ['received unexpected HTTP status: 503 Service Unavailable', 'registry_unreachable'],
    ['write /var/lib/docker/tmp/x: no space left on device', 'disk_full'],
    [
      'Cannot connect to the Docker daemon at unix:///tmp/none.sock. Is the docker daemon running?',
      'engine_unavailable',
    ],
    ['something else', 'task_failed'],
  ])('%s', (text, code) => {
    expect(classify(REGISTRY_FAILURES, text, 'task_failed')).toBe(code);
  });
  it('a missing manifest is image_pull_failed', () => {
    expect(
      classify(
        PULL_FAILURES,
        'Error response from daemon: manifest for (image) not found: manifest unknown: ' +
          'manifest unknown',
        'task_failed',
      ),
    ).toBe('image_pull_failed');
  });
});

const step = (name: string, error: string, output: string[] = []) => ({
  step: name,
  error,
  output,
});
describe('buildFailure', () => {
  it.each([
    [
      step('[3/3] RUN false', 'executor failed running [/bin/sh -c false]: exit code: 3', ['so']),
      'build_step_failed',
    ],
    [
      step(
        '[3/3] RUN false',
        'process "/bin/sh -c false" did not complete successfully: exit code: 1',
      ),
      'build_step_failed',
    ],
    [
      step('[2/2] COPY x /', 'failed to calculate checksum of ref: "/x": not found'),
      'build_step_failed',
    ],
    [step('[builder 2/2] RUN x', 'exit code: 2'), 'build_step_failed'],
    [step('[2/2] RUN dd', 'write /x: no space left on device'), 'disk_full'],
    [
      step(
        '[internal] load metadata for docker.io/library/nope:1',
        'docker.io/library/nope:1: not found',
      ),
      'build_base_image',
    ],
    [step('[1/2] FROM docker.io/library/nope:1', 'connection refused'), 'build_base_image'],
    [
      step(
        'push',
        'Get "http://10.99.1.1:9/v2/": dial tcp 10.99.1.1:9: connect: connection refused',
      ),
      'registry_unreachable',
    ],
    [
      step(
        'exporting to image',
        'failed to push 10.0.0.1/app:1: unexpected status: 401 Unauthorized',
      ),
      'registry_refused',
    ],
    [step('push', 'denied: requested access to the resource is denied'), 'registry_refused'],
    [step('push', 'unauthorized: authentication required'), 'registry_refused'],
    [
      step(
        'push',
        "error parsing HTTP 403 response body: invalid character 'o' in literal null " +
          '(expecting \'u\'): "no"',
      ),
      'registry_refused',
    ],
    [
      step('push', 'error parsing HTTP 502 response body: unexpected end of JSON input: ""'),
      'registry_unreachable',
    ],
    [step('push', 'received unexpected HTTP status: 500 Internal Server Error'), 'registry_failed'],
    [
      step('push', 'manifest unknown: requested access to the resource is denied'),
      'image_pull_failed',
    ],
    [step('push', 'manifest unknown: manifest unknown'), 'image_pull_failed'],
    [step('[internal] load metadata for r/x:1', 'r/x:1: manifest unknown'), 'build_base_image'],
    [
      step(
        '[internal] load build definition from Dockerfile',
        'target stage "nowhere" could not be found',
      ),
      'build_target_missing',
    ],
    [
      step(
        '[internal] load build definition from Dockerfile',
        'dockerfile parse error line 2: unknown instruction: RUNN',
      ),
      'build_failed',
    ],
  ])('%o', (failed, code) => {
    expect(buildFailure(failed, 'ERROR: failed to build: x').code).toBe(code);
  });
  it('classifies a failure without a failed step by the output', () => {
    // The push succeeded, but the registry lost the image before the builder asked for its digest.
    const lost =
      'ERROR: failed to build: Error response from daemon: manifest unknown: manifest unknown';
    expect(buildFailure(null, lost).code).toBe('image_pull_failed');
    expect(
      buildFailure(null, 'ERROR: failed to build: dockerfile parse error on line 2').code,
    ).toBe('build_failed');
    expect(
      buildFailure(
        null,
        'ERROR: failed to build: failed to solve: Unavailable: error reading from server: EOF',
      ).code,
    ).toBe('engine_unavailable');
    expect(
      buildFailure(
        null,
        'ERROR: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?',
      ).code,
    ).toBe('engine_unavailable');
  });
  it.each([
    ['[2/2] COPY x /', '"/x" not found: not found'],
    ['[2/2] ADD x /', 'failed to calculate checksum of ref a::b: "/x": not found'],
  ])('says what a missing file of %s means', (name, error) => {
    expect(buildFailure(step(name, error), '').message).toBe(
      `A step of the Dockerfile failed: ${name}: "/x" is not in the build context; commit it, or ` +
        'correct the path or .dockerignore',
    );
  });
  it('names the base image that could not be pulled', () => {
    const failed = step(
      '[internal] load metadata for docker.io/library/nope:1',
      'failed to do request: no such host',
    );
    expect(buildFailure(failed, '').message).toBe(
      'A base image could not be pulled: docker.io/library/nope:1: failed to do request: no ' +
        'such host',
    );
  });
  it('names the step, the exit code and the last output', () => {
    expect(
      buildFailure(step('[3/3] RUN npm test', 'exit code: 3', ['one', 'two']), '').message,
    ).toBe('A step of the Dockerfile failed: [3/3] RUN npm test: exit code 3\none\ntwo');
  });
});

it.each(['ENOSPC', 'EDQUOT'])(
  'a write of the agent itself that finds the disk full is disk_full: %s',
  (code) => {
    const error = Object.assign(new Error(`${code}: no space, write`), { code });
    expect(taskErrorOf(error)).toMatchObject({
      code: 'disk_full',
      message: expect.stringContaining('no space'),
    });
    expect(taskErrorOf(new Error('deploy failed', { cause: error }))).toMatchObject({
      code: 'task_failed',
    });
  },
);

it('taskErrorOf keeps codes, and reports an unexpected error as task_failed', () => {
  expect(taskErrorOf(new TaskFailure('disk_full', 'x'))).toEqual({
    code: 'disk_full',
    message: 'The disk is full: x',
  });
  expect(taskErrorOf(new Error('surprise'))).toEqual({
    code: 'task_failed',
    message: 'The agent reported a failure: surprise',
  });
  const result = {
    argv: [],
    code: 1,
    signal: null,
    stdout: '',
    stdoutCut: false,
    stderr: 'no space left on device',
    ended: null,
  };
  expect(taskErrorOf(new ExecError('x', result)).code).toBe('disk_full');
});

describe('the builder', () => {
  it.each([
    ['github.com/docker/buildx v0.9.1 ed00243', 'BuildKit version: v0.12.3', /buildx 0.9.*0.10/],
    ['github.com/docker/buildx 0.29.1+ds1 0.29.1', 'Buildkit:  v0.7.0', /BuildKit 0.7.*0.8/],
    ['github.com/docker/buildx v0.13.0', 'Buildkit: 20.10.24', null],
    ['github.com/docker/buildx v1.2.0', '', null],
  ])('%s with %s: minimum versions', (buildx, builder, expected) => {
    const problem = builderProblem(buildx, builder);
    if (expected === null) expect(problem).toBeNull();
    else expect(problem).toMatch(expected);
  });
});

it('a failure message holds no terminal escape sequences', () => {
  const message = taskErrorOf(
    new TaskFailure(
      'build_step_failed',
      'RUN x: exit code 1\n\u001b[31mred\u001b[0m \u001b]0;title\u0007end',
    ),
  ).message;
  expect(message).toMatch(/exit code 1\nred end$/);
});

describe('a failure says what to do next', () => {
  const parse = '[internal] load build definition from Dockerfile';
  const HEREDOC = 'FROM busybox\nRUN <<EOF\nset -e\nEOF\n';
  it.each([
    [
      'a heredoc on an old engine',
      step(parse, 'dockerfile parse error line 3: unknown instruction: SET'),
      HEREDOC,
      /unknown instruction: SET in line 3.*# syntax=docker\/dockerfile:1.*Docker 23/,
    ],
    [
      'COPY --link on an old engine',
      step(parse, 'failed to solve: dockerfile parse error line 2: Unknown flag: link'),
      'FROM busybox\nCOPY --link a /b\n',
      /Unknown flag: link in line 2.*# syntax=/,
    ],
    [
      'a misspelt instruction',
      step(parse, 'dockerfile parse error line 2: unknown instruction: RUNN'),
      'FROM busybox\nRUNN x\n',
      /RUNN in line 2 of the Dockerfile\. Correct the line/,
    ],
    [
      'newer syntax with a frontend of its own',
      step(parse, 'dockerfile parse error line 3: unknown instruction: SET'),
      `# syntax=docker/dockerfile:1.2\n${HEREDOC}`,
      /SET in line 3 of the Dockerfile\. Correct the line/,
    ],
    [
      'a frontend that cannot be pulled',
      step(
        'resolve image config for docker.io/docker/dockerfile:1',
        'failed to do request: dial tcp: lookup registry-1.docker.io: no such host',
      ),
      '# syntax=docker/dockerfile:1\nFROM x\n',
      /the frontend docker.io\/docker\/dockerfile:1 of the line "# syntax=" could not be pulled.*or remove the line/,
    ],
    [
      'an unknown stage',
      step(parse, 'target stage "nowhere" could not be found'),
      'FROM a AS base\nFROM base AS web\n',
      /"nowhere" could not be found\. The Dockerfile has the stages base, web; set build_target/,
    ],
    [
      'a stage in a Dockerfile without names',
      step(parse, 'target stage "x" could not be found'),
      'FROM a\n',
      /remove build_target/,
    ],
  ])('%s', (_, failed, dockerfile, expected) => {
    const { code, message } = buildFailure(failed, '', dockerfile);
    expect(message).toMatch(expected);
    expect(['build_failed', 'build_target_missing']).toContain(code);
    expect(message.split('\n')[0]).toBe(message);
  });

  const heads = (fallback: string | null, ...names: string[]) => ({
    default: fallback,
    names: new Set(names),
  });
  it.each([
    [
      'the default branch first',
      'main',
      heads('master', 'dev', 'master'),
      'main. The repository has master (default), dev; set branch to one of them',
    ],
    [
      'a similar name before it',
      'Login',
      heads('main', 'a', 'feature/login', 'main'),
      'Login. The repository has feature/login, main (default), a; set branch to one of them',
    ],
    [
      'a bounded list',
      'x',
      heads(null, ...Array.from({ length: 5_000 }, (__, i) => `b${String(i).padStart(4, '0')}`)),
      /^x\. The repository has b0000, .*b0009 and 4990 more; set branch/,
    ],
    [
      'an empty repository',
      'main',
      heads(null),
      'main. The repository has no branches; push a commit first',
    ],
  ])('an unknown branch: %s', (_, branch, found, expected) => {
    if (typeof expected === 'string') expect(unknownBranch(branch, found)).toBe(expected);
    else expect(unknownBranch(branch, found)).toMatch(expected);
  });
});

it('repeats what a server answers over ssh, or if an operator chose the hosts, and never a page of an internal service', () => {
  const stderr = "remote: 404 page not found\nfatal: repository 'http://10.0.0.5/x.git/' not found";
  const of = (url: string, allowedHosts?: string[]): string =>
    gitFailure(stderr, {
      url,
      branch: 'main',
      commit: null,
      ...(allowedHosts === undefined ? {} : { allowedHosts }),
    }).message;
  for (const message of [of('http://10.0.0.5/x.git'), of('HTTPS://10.0.0.5/x.git', [])]) {
    expect(message).not.toContain('page not found');
    expect(message).toContain("repository 'http://10.0.0.5/x.git/' not found");
  }
  for (const message of [of('ssh://git@10.0.0.5/x.git'), of('http://10.0.0.5/x.git', ['10.0.0.5'])])
    expect(message).toContain('remote: 404 page not found');
});
