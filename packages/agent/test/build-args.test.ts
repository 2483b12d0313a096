/** How build arguments reach buildx. */
import { expect, it } from 'vitest';
import { buildArgs } from '../src/tools/buildx.ts';

it('a value is in the environment and not among the arguments', () => {
  expect(buildArgs({ VERSION: '1', api_key: 'secret', EMPTY: '' })).toEqual({
    argv: ['--build-arg', 'VERSION', '--build-arg', 'api_key', '--build-arg', 'EMPTY'],
    env: { VERSION: '1', api_key: 'secret', EMPTY: '' },
  });
});

it.each([
  ...[
    'PATH',
    'HOME',
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'DOCKER_HOST',
    'DOCKER_CONFIG',
    'BUILDX_BUILDER',
    'GODEBUG',
    'SSL_CERT_FILE',
    'TMPDIR',
  ],
  ...['HTTP_PROXY', 'https_proxy', 'no_proxy', 'ALL_PROXY', 'OTEL_EXPORTER_OTLP_ENDPOINT', 'XDG_CONFIG_HOME', 'GIT_DIR', 'SSH_AUTH_SOCK'],
  ...['HOSTALIASES', 'GLIBC_TUNABLES', 'RES_OPTIONS', 'LC_ALL', 'TZ', 'AWS_PROFILE', 'SOURCE_DATE_EPOCH'],
])('a name that docker or its libraries read is never in their environment: %s', (name) => {
  expect(buildArgs({ [name]: 'x' })).toEqual({ argv: ['--build-arg', `${name}=x`], env: {} });
});

it.each(['BUILDKIT_SYNTAX', 'BUILDKIT_CACHE_MOUNT_NS', 'buildkit_x'])('%s is refused', (name) => {
  expect(() => buildArgs({ [name]: 'x' })).toThrow(name);
});
