import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createApp } from '../src/app.ts';
import { createNotes } from '../src/notes.ts';

test('notes are kept and listed', async (t) => {
  const app = createApp({ version: '1.0.0', greeting: 'hi', notes: createNotes() }).listen(0);
  t.after(() => app.close());
  await once(app, 'listening');
  const url = `http://127.0.0.1:${(app.address() as AddressInfo).port}`;
  const added = await fetch(`${url}/notes`, {
    method: 'POST',
    body: JSON.stringify({ text: 'moored' }),
  });
  assert.equal(added.status, 201);
  const { items } = (await (await fetch(`${url}/notes`)).json()) as { items: { text: string }[] };
  assert.deepEqual(
    items.map((note) => note.text),
    ['moored'],
  );
  assert.equal((await fetch(`${url}/notes`, { method: 'POST', body: '{' })).status, 400);
});
