/**
 * The main job as somebody writes it who has the OpenAPI document alone. openapi.slow.test.ts compiles
 * it against the types that openapi-typescript generates into schema.d.ts beside a copy of it, then
 * runs it against a control plane.
 */
import createClient from 'openapi-fetch';
import type { paths } from './schema.d.ts';

/** Returns what the calls answered, for the test to judge. */
export async function mainJob(baseUrl: string, email: string, password: string) {
  const anonymous = createClient<paths>({ baseUrl });
  const login = await anonymous.POST('/api/auth/login', { body: { email, password } });
  if (login.data === undefined) throw new Error(login.error.detail);

  const client = createClient<paths>({
    baseUrl,
    headers: { authorization: `Bearer ${login.data.token}` },
  });
  const project = await client.POST('/api/projects', {
    params: { header: { 'Idempotency-Key': 'main-job' } },
    body: {
      name: 'generated',
      git_url: 'https://git.example.com/generated.git',
      domain_prefix: 'generated',
      env: { A: '1' },
    },
  });
  if (project.data === undefined) throw new Error(project.error.detail);
  const { id } = project.data;

  const patched = await client.PATCH('/api/projects/{id}', {
    params: { path: { id } },
    body: { health_path: null, memory_bytes: 268_435_456 },
  });
  const deployment = await client.POST('/api/projects/{id}/deployments', {
    params: { path: { id } },
    body: { note: 'by a generated client' },
  });
  if (deployment.data === undefined) throw new Error(deployment.error.detail);
  // A field that may be null has that type, without a wrapper.
  const node: string | null = deployment.data.node_id;

  const path = { id: deployment.data.id };
  const log = await client.GET('/api/deployments/{id}/logs', {
    params: { path, query: { after: 0, limit: 10 } },
  });
  const list = await client.GET('/api/deployments', {
    params: { query: { project_id: id, status: 'pending', limit: 1 } },
  });
  const cancelled = await client.POST('/api/deployments/{id}/cancel', { params: { path } });
  const refused = await client.POST('/api/projects', {
    body: { name: 'generated', git_url: 'x', domain_prefix: 'y' },
  });
  return {
    node,
    memory: patched.data?.memory_bytes,
    // This address also answers with an event stream, which is text.
    lines: typeof log.data === 'object' ? log.data.lines : null,
    listed: list.data?.items.map((d) => d.id),
    cancelled: cancelled.data?.status,
    deployment: deployment.data.id,
    refusal: refused.error?.code,
  };
}
