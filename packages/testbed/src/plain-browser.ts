/**
 * A browser without a window: keeps host-only cookies, follows redirects, fills in forms. Every
 * host leads to this machine, because Node does not resolve `*.localhost`. Certificates are not
 * checked. For checks that must run on machines without Chromium.
 */
import { defined } from '@berth/kit/defined';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';

export type Page = {
  status: number;
  /** Address after all redirects. */
  url: URL;
  headers: Record<string, string | string[] | undefined>;
  body: string;
  /** All answers on the way, oldest first, including this one. */
  hops: { url: string; status: number }[];
};
export type Ask = {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  /** Whether redirects are followed (default true). */
  follow?: boolean;
};
type Cookie = {
  name: string;
  value: string;
  path: string;
  secure: boolean;
  httpOnly: boolean;
  sameSite: string;
  host: string;
};

export class PlainBrowser {
  /** Cookies by host, path and name. */
  readonly #jar = new Map<string, Cookie>();
  /** Every cookie value so far, for checks that a value appears nowhere else. */
  readonly cookieValues = new Set<string>();
  /** Every answer, oldest first. */
  readonly answers: { url: string; status: number; body: string }[] = [];
  /** Every `Set-Cookie` header, unchanged. */
  readonly setCookies: { host: string; header: string }[] = [];

  cookies(host: string): Cookie[] {
    return [...this.#jar.values()].filter((cookie) => cookie.host === host);
  }
  forgetCookies(): void {
    this.#jar.clear();
  }

  /** Opens an address, like a person who types it or follows a link. */
  async open(address: string | URL, ask: Ask = {}): Promise<Page> {
    let url = new URL(address);
    let { method = 'GET', body } = ask;
    const hops: Page['hops'] = [];
    for (;;) {
      const headers = {
        accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
        'user-agent': 'PlainBrowser',
        ...ask.headers,
      };
      const answer = await this.#once(url, method, headers, body);
      hops.push({ url: url.href, status: answer.status });
      const location = answer.headers['location'];
      if (
        ask.follow === false ||
        typeof location !== 'string' ||
        answer.status < 300 ||
        answer.status >= 400
      )
        return { ...answer, url, hops };
      if (hops.length > 20)
        throw new Error(`more than 20 redirects:\n${hops.map((hop) => hop.url).join('\n')}`);
      // Fetch standard, HTTP-redirect fetch: every status except 307 and 308 turns a POST into a
      // GET.
      if (answer.status !== 307 && answer.status !== 308) [method, body] = ['GET', undefined];
      url = new URL(location, url);
    }
  }

  /**
   * Submits the form of `page` that has all of `fields` (or the button of that name). Its other
   * fields keep their values.
   */
  submit(page: Page, fields: Record<string, string>, button?: string): Promise<Page> {
    const form = formsOf(page.body).find(
      (f) =>
        Object.keys(fields).every((name) => f.inputs.some((input) => input.name === name)) &&
        (button === undefined || f.buttons.some((b) => b.text === button || b.value === button)),
    );
    if (form === undefined)
      throw new Error(
        `no form with ${[...Object.keys(fields), button].join(', ')} at ` +
          `${page.url.href}:\n${page.body}`,
      );
    const pressed =
      form.buttons.find((b) => b.text === button || b.value === button) ?? form.buttons[0];
    const values = new URLSearchParams();
    for (const input of form.inputs) values.append(input.name, fields[input.name] ?? input.value);
    if (pressed !== undefined && pressed.name !== '') values.append(pressed.name, pressed.value);
    const url = new URL(form.action === '' ? page.url.href : form.action, page.url);
    if (form.method !== 'post') {
      url.search = values.toString();
      return this.open(url);
    }
    const headers = {
      'content-type': 'application/x-www-form-urlencoded',
      origin: page.url.origin,
    };
    return this.open(url, { method: 'POST', headers, body: values.toString() });
  }

  #once(
    url: URL,
    method: string,
    headers: Record<string, string>,
    body?: string,
  ): Promise<Pick<Page, 'status' | 'headers' | 'body'>> {
    const secure = url.protocol === 'https:';
    const cookies = this.cookies(url.hostname)
      .filter((cookie) => pathMatches(url.pathname, cookie.path) && (secure || !cookie.secure))
      .map((cookie) => `${cookie.name}=${cookie.value}`);
    const sent = {
      host: url.host,
      ...defined({ cookie: cookies.length === 0 ? undefined : cookies.join('; ') }),
      ...headers,
      ...defined({
        'content-length': body === undefined ? undefined : String(Buffer.byteLength(body)),
      }),
    };
    return new Promise((resolve, reject) => {
      const request = (secure ? httpsRequest : httpRequest)({
        host: '127.0.0.1',
        port: url.port || (secure ? 443 : 80),
        path: url.pathname + url.search,
        method,
        headers: sent,
        timeout: 15_000,
        agent: false,
        ...defined({
          servername: secure ? url.hostname : undefined,
          rejectUnauthorized: secure ? false : undefined,
        }),
      });
      request.on('response', (response) => {
        for (const header of response.headers['set-cookie'] ?? []) this.#store(url, header);
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
        response.on('error', reject);
        response.on('end', () => {
          const status = response.statusCode ?? 0;
          this.answers.push({ url: url.href, status, body: text });
          resolve({ status, headers: response.headers, body: text });
        });
      });
      request.on('timeout', () =>
        request.destroy(new Error(`request timed out: ${url.origin}${url.pathname}`)),
      );
      request.on('error', reject);
      request.end(body);
    });
  }

  /** Stores a cookie by RFC 6265bis section 5.7, as far as host-only cookies need it. */
  #store(url: URL, header: string): void {
    const host = url.hostname;
    this.setCookies.push({ host, header });
    const [pair = '', ...attributes] = header.split(';').map((part) => part.trim());
    const at = pair.indexOf('=');
    const name = pair.slice(0, at);
    const value = pair.slice(at + 1);
    const cookieAttributes = new Map(
      attributes.map((attribute) => {
        const [key = '', ...rest] = attribute.split('=');
        return [key.toLowerCase(), rest.join('=')] as const;
      }),
    );
    const asked = cookieAttributes.get('path') ?? '';
    const path = asked.startsWith('/') ? asked : url.pathname.replace(/\/[^/]*$/, '') || '/';
    const key = `${host} ${path} ${name}`;
    const age = cookieAttributes.get('max-age');
    const expires = cookieAttributes.get('expires');
    const ended =
      age === undefined
        ? expires !== undefined && Date.parse(expires) <= Date.now()
        : Number(age) <= 0;
    if (ended) {
      this.#jar.delete(key);
      return;
    }
    if (value !== '') this.cookieValues.add(value);
    const [secure, httpOnly, sameSite] = [
      cookieAttributes.has('secure'),
      cookieAttributes.has('httponly'),
      (cookieAttributes.get('samesite') ?? '').toLowerCase(),
    ];
    this.#jar.set(key, { name, value, path, secure, httpOnly, sameSite, host });
  }
}

/** Matches paths by RFC 6265bis section 5.1.4. */
const pathMatches = (path: string, cookie: string): boolean =>
  path === cookie || path.startsWith(cookie.endsWith('/') ? cookie : `${cookie}/`);

type Form = {
  action: string;
  method: string;
  inputs: { name: string; value: string }[];
  buttons: { name: string; value: string; text: string }[];
};

function formsOf(html: string): Form[] {
  return [...html.matchAll(/<form\b([^>]*)>([^]*?)<\/form>/gi)].map(([, open = '', inner = '']) => {
    const fields = [...inner.matchAll(/<input\b([^>]*)>/gi)].map(([, tag = '']) => ({
      type: (attribute(tag, 'type') || 'text').toLowerCase(),
      name: attribute(tag, 'name'),
      value: attribute(tag, 'value'),
    }));
    const buttons = [...inner.matchAll(/<button\b([^>]*)>([^]*?)<\/button>/gi)].map(
      ([, tag = '', text = '']) => ({
        name: attribute(tag, 'name'),
        value: attribute(tag, 'value'),
        text: text.replaceAll(/<[^>]*>/g, '').trim(),
      }),
    );
    const submits = fields
      .filter((field) => field.type === 'submit')
      .map(({ name, value }) => ({ name, value, text: value }));
    return {
      action: attribute(open, 'action'),
      method: attribute(open, 'method').toLowerCase(),
      inputs: fields.filter((field) => field.name !== '' && field.type !== 'submit'),
      buttons: [...buttons, ...submits],
    };
  });
}

function attribute(tag: string, name: string): string {
  const match = new RegExp(`\\b${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s>]+))`, 'i').exec(tag);
  return (match?.[1] ?? match?.[2] ?? match?.[3] ?? '')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');
}
