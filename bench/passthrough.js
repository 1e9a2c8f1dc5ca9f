// The plain Worker that a model's answer is compared through: asks the model, hands its body on unread.
export default {
  fetch(request, env) {
    return fetch(env.MODEL, { method: 'POST', headers: { 'content-type': 'application/json' }, body: request.body });
  },
};
